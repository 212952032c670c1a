"""The study of endings: what it trains, how it judges, and, in the slow form, its findings."""

import numpy as np
import pytest

from regard.data import generate
from regard.run import load
from regard.tasks import read_settings
from regard_studies import Setting, ending, run
from regard_studies.ending import (
    CORPORA,
    MAX_WORDS,
    MIN_WORDS,
    Endings,
    end_probabilities,
    even_hazard,
    hazard,
    tables,
    verdicts,
    wasted,
)


@pytest.mark.parametrize("quick", [True, False])
def test_systems_differ_in_positions_alone(quick):
    for corpus in CORPORA:
        systems = [read_settings(table) for name, table in tables(quick).items() if name.startswith(corpus)]
        assert {each.model.positions for each in systems} == {"sinusoidal", "rotary", "none"}
        assert len({(each.data, each.tokenizer, each.training, each.model.size) for each in systems}) == 1


def test_the_true_share_is_what_the_corpus_has():
    """The share of sequences that end at a place, counted in many of them, equals the share by definition."""
    options = {"shortest": MIN_WORDS, "longest": MAX_WORDS, "symbols": 30}
    lengths = [len(each.target.split()) for each in generate("copy", 20_000, seed=3, **options)]
    counted, known = hazard(lengths, MAX_WORDS + 1), even_hazard(MAX_WORDS + 1)
    assert known[MAX_WORDS] == 1
    assert np.abs(counted - known).max() < 0.03


def endings(probabilities, perplexity):
    whole = np.array(probabilities, float)
    return Endings(whole, whole, perplexity, 7)


def test_verdicts_follow_the_figures():
    truth = {"symbols": even_hazard(MAX_WORDS + 1), "phrasebook": np.zeros(5)}
    flat = np.full(MAX_WORDS + 1, 0.11)
    good = {"sinusoidal": endings(truth["symbols"], 20.0), "rotary": endings(truth["symbols"], 20.1)}
    sentences = {name: endings(np.zeros(5), 9.0) for name in good} | {"none": endings(np.zeros(5), 9.5)}
    figures = {"symbols": good | {"none": endings(flat, 21.0)}, "phrasebook": sentences}
    assert [each.agrees for each in verdicts(figures, truth)] == [True] * 4
    figures["symbols"]["none"] = endings(truth["symbols"], 20.0)  # this model has learned to count
    assert [each.agrees for each in verdicts(figures, truth)] == [True, True, False, False]
    figures["symbols"]["rotary"] = endings(flat, 20.0)
    assert [each.agrees for each in verdicts(figures, truth)] == [False, False, False, False]


def test_a_page_of_a_hardly_trained_study(shorten):
    whole = ending.tests
    setting = shorten(
        ending,
        training={"batch_tokens": 256},
        data={"count": 200},
        model={"size": 8, "hidden": 8, "layers": 1, "heads": 2},
        tests=lambda corpus, quick: whole(corpus, quick)[:20],
    )
    page = run("ending", setting=setting)
    assert [len(table.rows) for table in page.tables] == [6, 7, 7]
    shares = [cell for row in page.tables[1].rows for cell in row[1:] if cell is not None]
    assert all(0 <= share <= 100 for share in shares)
    assert page.write(setting.out).is_file()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_claim_holds(tmp_path):
    """With positions; how well a model counts by its mask alone is reported, not asserted."""
    page = run("ending", setting=Setting((0,), quick=True, device="cpu", out=tmp_path))
    assert [each.agrees for each in page.verdicts[:2]] == [True, True]


def test_shares_are_counted():
    shares = hazard([1, 1, 2, 4], 6)
    np.testing.assert_allclose(shares[:5], [0, 0.5, 0.5, 0, 1])
    assert np.isnan(shares[5])  # no sequence is so long
    assert wasted(shares, shares) == 0
    assert wasted(np.array([0.5, np.nan]), np.array([0.25, 0.1])) == 25


def test_the_last_probability_is_what_a_score_says_of_the_end(furnish):
    run = load(furnish(run="language-model") / "run")
    texts = ["a man rides a horse", "two dogs", ""]
    for row, scored in zip(end_probabilities(run, texts), run.score(texts), strict=True):
        assert len(row) == len(scored.tokens)
        assert row[-1] == pytest.approx(np.exp(scored.tokens[-1]), rel=1e-4)
        assert ((row > 0) & (row < 1)).all()


def test_a_stop_is_asked_for_in_place_of_the_end(furnish):
    """After each word of a text without its full stop, return the probability of the stop there."""
    run = load(furnish(run="language-model") / "run")
    (row,) = end_probabilities(run, ["a man"], stop="horse")
    pieces = len(run.tokenizers.target.encode("a man"))
    assert len(row) == pieces + 1
    (scored,) = run.score(["a man horse"])
    assert row[-1] == pytest.approx(np.exp(scored.tokens[pieces]), rel=1e-4)
