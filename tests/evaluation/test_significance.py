"""The paired bootstrap, against sacreBLEU's and against expected results."""

import json
import random
import time

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest, _compute_p_value

from regard.errors import ArgumentError
from regard.evaluation.significance import (
    SEED,
    compare_outputs,
    conclusion,
    find_contrasts,
    interval,
    paired_bootstrap,
    resample,
)
from regard.evaluation.text import (
    chrf,
    measure_bleu,
    measure_chrf,
    measure_errors,
    measure_exact,
    measure_ter,
)

MEASURES = (measure_bleu, measure_chrf, measure_ter)
WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "e", "in", "ost", "und")]


def noisy(texts, share, seed):
    draw = random.Random(seed)
    return [" ".join(w if draw.random() > share else draw.choice(WORDS) for w in text.split()) for text in texts]


@pytest.fixture(scope="module")
def systems():
    draw = random.Random(1)
    references = [" ".join(draw.choices(WORDS, k=draw.randint(1, 14))) for _ in range(120)]
    return references, noisy(references, 0.36, 2), noisy(references, 0.30, 3)


def test_the_same_draws_as_sacrebleu(systems):
    references, a, b = systems
    metrics = {"BLEU": sacrebleu.BLEU(force=True), "chrF2": sacrebleu.CHRF(), "TER": sacrebleu.TER()}
    _, theirs = PairedTest([("a", a), ("b", b)], metrics, [references], test_type="bs", n_samples=200)()
    first, second = ([measure(each, references) for measure in MEASURES] for each in (a, b))
    ours = paired_bootstrap(first, second, resamples=200, seed=SEED)
    drawn = resample([*first, *second], 200)
    for i, (name, difference) in enumerate(zip(metrics, ours, strict=True)):
        baseline, system = theirs[name]
        one, other = drawn[i], drawn[i + 3]
        assert (difference.a.value, difference.b.value) == pytest.approx((baseline.score, system.score))
        # sacreBLEU uses float32
        assert other.mean() == pytest.approx(system.mean, rel=1e-5)
        low, high = interval(other)
        assert (high - low) / 2 == pytest.approx(system.ci, rel=1e-4)
        assert difference.mean == pytest.approx(system.mean - baseline.mean, abs=1e-4)
        # Its p from our draws equals its p; it is one-sided, ours is not.
        sample = np.abs(other - one)
        assert _compute_p_value(sample - sample.mean(), abs(difference.value)) == pytest.approx(
            system.p_value, abs=0.006
        )
        assert system.p_value <= difference.p + 1e-9
        assert difference.p <= 2 * system.p_value + 0.05


def test_a_system_with_itself(systems):
    references, a, _ = systems
    (difference,) = paired_bootstrap([measure_bleu(a, references)], [measure_bleu(a, references)], resamples=50)
    assert (difference.value, difference.p, difference.low, difference.high) == (0, 1, 0, 0)
    assert difference.better is None
    assert not difference.significant
    assert conclusion([difference]) == "A and B are equal by BLEU."


def test_turned_around(systems):
    references, a, b = systems
    first, second = ([measure_exact(each, references), measure_errors(each, references)] for each in (a, b))
    for one, other in zip(paired_bootstrap(first, second), paired_bootstrap(second, first), strict=True):
        assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))
        assert one.p == other.p
        assert {one.better, other.better} == {"A", "B"}


def test_better_is_lower_where_lower_is_better(systems):
    references, a, _ = systems
    (difference,) = paired_bootstrap([measure_ter(a, references)], [measure_ter(references, references)], resamples=99)
    assert difference.value < 0
    assert difference.better == "B"
    assert difference.p == 0.01  # none of 99 is as far from zero
    assert (
        conclusion([difference])
        == f"B is better by {-difference.value:.2f} TER; the difference is significant (p = 0.01)."
    )


def test_luck_is_called_luck():
    """For two equally good systems, a p-value below 5 % occurs in about one of twenty runs, with any metric."""
    count = 0
    for seed in range(60):
        draw = random.Random(seed)
        a, b = ([draw.choice(["x", "y"]) for _ in range(80)] for _ in "ab")
        one, other = measure_exact(a, ["x"] * 80), measure_exact(b, ["x"] * 80)
        (difference,) = paired_bootstrap([one], [other], resamples=300, seed=seed)
        count += difference.significant
        # The interval and p agree, except near the edge.
        outside = not difference.low <= 0 <= difference.high
        assert outside == difference.significant or 0.03 < difference.p < 0.08
    assert count <= 9  # of 60 with 5 % each, more occur once in a thousand times


def test_the_sentence_for_luck_shares_and_contradiction(systems):
    references, a, b = systems
    (difference,) = paired_bootstrap([measure_exact(a, references)], [measure_exact(b, references)], resamples=50)
    text = conclusion([difference])
    assert "percentage points of exact match" in text
    mean = [" ".join(text.split()[:-1] or ["ba"]) for text in references]
    pair = [[measure_exact(each, references), measure_errors(each, references)] for each in (b, mean)]
    exact, errors = paired_bootstrap(*pair)
    assert (exact.better, errors.better, errors.significant) == ("A", "B", True)
    assert conclusion([exact, errors]).endswith(" But token error rate significantly prefers the other.")
    (nearly,) = paired_bootstrap(
        [measure_exact(["x"] * 9 + ["y"], ["x"] * 10)], [measure_exact(["x"] * 10, ["x"] * 10)]
    )
    assert conclusion([nearly]).startswith(
        "B is better by 10.00 percentage points of exact match, but the difference is not "
    )


def test_a_large_corpus_in_a_moment_and_in_blocks(monkeypatch):
    import regard.evaluation.significance as module

    rows = ["x" if random.random() < 0.7 else "y" for _ in range(20_000)]
    measured = measure_exact(rows, ["x"] * len(rows))
    start = time.process_time()
    whole = resample([measured], 300)[0]
    assert time.process_time() - start < 5
    monkeypatch.setattr(module, "BLOCK", 70_000)
    assert np.array_equal(resample([measured], 300)[0], whole)


def test_what_cannot_be_compared(systems):
    references, a, b = systems
    one = measure_bleu(a, references)
    with pytest.raises(ArgumentError, match="resamples: 0 given"):
        paired_bootstrap([one], [one], resamples=0)
    with pytest.raises(ArgumentError, match=r"\['chrF'\] given, expected as in a: \['BLEU'\]"):
        paired_bootstrap([one], [measure_chrf(b, references)])
    with pytest.raises(ArgumentError, match=r"\[119, 120\] sentences given"):
        paired_bootstrap([one], [measure_bleu(a[1:], references[1:])])
    with pytest.raises(ArgumentError, match="no sentences given"):
        paired_bootstrap([measure_exact([], [])], [measure_exact([], [])])


def test_where_two_systems_differ():
    references = [("one two", "uno dos"), "three four", "five", "six seven"]
    a, b = ["uno dos", "three for", "five", "x"], ["uno", "three four", "five", "six seven"]
    worse, better = find_contrasts(["1 2", "3 4", "5", "6 7"], references, a, b, count=2)
    assert [each.number for each in worse] == [1]
    assert (worse[0].source, worse[0].reference, worse[0].a, worse[0].b) == ("1 2", "uno dos", "uno dos", "uno")
    assert worse[0].a_chrf == 100
    assert [each.number for each in better] == [4, 2]  # the largest difference first
    assert better[1].a_chrf == chrf(["three for"], ["three four"])
    assert find_contrasts(["1"], ["x"], ["y"], ["y"]) == ([], [])
    assert find_contrasts(["1"], ["x"], ["y"], ["x"], count=0) == ([], [])


def test_a_comparison_has_all_of_it(systems):
    references, a, b = systems
    found = compare_outputs(a, b, references, references, ["chrf", "exact"], resamples=50, seed=7, examples=2)
    first, second = ([measure(each, references) for measure in (measure_chrf, measure_exact)] for each in (a, b))
    differences = paired_bootstrap(first, second, resamples=50, seed=7)
    assert found.differences == dict(zip(("chrf", "exact"), differences, strict=True))
    assert found.contrasts == find_contrasts(references, references, a, b, count=2)
    assert (found.sentences, found.same) == (120, sum(one == other for one, other in zip(a, b, strict=True)))
    table = json.loads(json.dumps(found.table(), allow_nan=False))
    assert table["said"] == found.conclusion == conclusion(differences)
    assert table["metrics"]["chrf"]["difference"] == differences[0].value
    assert [len(table[name]) for name in ("a_better", "b_better")] == [2, 2]
