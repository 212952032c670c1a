"""Caption scores: by hand, by their properties, and BLEU against sacreBLEU's."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.evaluation.captions import (
    caption_scores,
    longest_common_subsequence,
    measure_bleu_n,
    measure_cider,
    measure_rouge,
    words,
)


def bleu(outputs, references, n=4):
    return measure_bleu_n(outputs, references, n).score().value


def cider(outputs, references):
    return measure_cider(outputs, references).score().value


def rouge(outputs, references):
    return measure_rouge(outputs, references).score().value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man, in a red T-shirt.", "a man in a red t-shirt"),
        ("The dog's ball isn't (very) big!", "the dog 's ball is n't very big"),
        ("  two   dogs …  ", "two dogs"),
        ("“Stop” - says a sign", "stop says a sign"),
        ("the girl’s hat", "the girl 's hat"),
        ("at 3.5 metres", "at 3.5 metres"),
        ("... !", ""),
    ],
)
def test_words(text, expected):
    assert " ".join(words(text)) == expected


def test_bleu_by_hand():
    """`the` is clipped at the two of the second reference; the nearest length is 7."""
    outputs = ["the the the cat the the the"]
    references = [["the cat is on the mat today", "there is a cat on the mat"]]
    assert bleu(outputs, references, 1) == pytest.approx(100 * 3 / 7)
    assert bleu(outputs, references, 2) == pytest.approx(100 * math.sqrt(3 / 7 * 1 / 6))
    assert bleu(outputs, references, 3) == 0.0


def test_a_short_output_pays_by_the_nearest_reference():
    outputs, references = ["a b c"], [["a b c d e f", "a b c d", "a b"]]
    # 2 and 4 words are equally near: the shorter counts, and there is no penalty.
    assert bleu(outputs, references, 1) == pytest.approx(100)
    assert bleu(["a b c"], [["a b c d e", "a b c d e f"]], 1) == pytest.approx(100 * math.exp(1 - 5 / 3))


def test_bleu_is_of_the_whole_corpus():
    outputs, references = ["a b", "c d e f"], [["a b"], ["c x e f"]]
    assert bleu(outputs, references, 1) == pytest.approx(100 * 5 / 6)
    assert bleu(outputs, references, 2) == pytest.approx(100 * math.sqrt(5 / 6 * 2 / 4))


def test_bleu_is_sacrebleus_where_words_stand_apart():
    from sacrebleu import BLEU

    random.seed(5)
    text = lambda: " ".join(random.choice("abcdefg") for _ in range(random.randint(4, 12)))  # noqa: E731
    references = [[text() for _ in range(3)] for _ in range(30)]
    outputs = [random.choice(each)[:-2] + " a b" for each in references]
    for n in (1, 2, 3, 4):
        theirs = BLEU(tokenize="none", smooth_method="none", max_ngram_order=n, force=True)
        streams = [list(each) for each in zip(*references, strict=True)]
        assert bleu(outputs, references, n) == pytest.approx(theirs.corpus_score(outputs, streams).score)


def test_cider_by_hand():
    """Two pictures; `a` is in both, so it has no weight, and every other word or pair of words has weight log 2."""
    outputs, references = ["a red dog", "a cat"], [["a red dog"], ["a cat"]]
    # The 1-grams and 2-grams of both and the 3-gram of the first match; there are no 4-grams.
    assert measure_cider(outputs, references).rows[:, 0] == pytest.approx([10 * 3 / 4, 10 * 2 / 4])
    # The reference has `red` and `dog`; the output, one word shorter, has `dog`: cosine 1/√2, length exp(-1/72).
    first = measure_cider(["a dog", "a cat"], references).rows[0, 0]
    unigrams = 1 / math.sqrt(2)
    bigrams = 0.0  # `a dog` is in no reference: the output's vector is (a dog), the reference's (a red), (red dog)
    assert first == pytest.approx(10 / 4 * math.exp(-1 / 72) * (unigrams + bigrams))


def test_cider_clips_what_is_said_too_often():
    references = [["a dog"], ["a cat"]]
    once, often = (measure_cider([text, "a cat"], references).rows[0, 0] for text in ("dog a", "dog dog"))
    # (dog: 2) against (dog: 1): min(2, 1) · 1 / (2 · 1), where the cosine would be 1.
    assert once == pytest.approx(10 / 4 * 1)
    assert often == pytest.approx(10 / 4 * 0.5)


def test_cider_of_several_references_is_their_mean():
    references = [["a red dog", "a blue bird"], ["a cat", "a cow"]]
    both = measure_cider(["a red dog", "a cat"], references).rows[0, 0]
    assert 0 < both < 10 * 3 / 4
    assert both == pytest.approx(10 * 3 / 4 / 2)  # the other one has only `a`, which has no weight


def test_rouge_by_hand():
    """`police the gunman`: a subsequence of two words, P = 2/3, R = 2/4."""
    p, r, b = 2 / 3, 2 / 4, 1.2**2
    assert rouge(["police the gunman"], [["police kill the suspect"]]) == pytest.approx(
        100 * (1 + b) * p * r / (r + b * p)
    )
    # Precision and recall are each the best over all references.
    p, r = 2 / 3, 1.0
    several = rouge(["police the gunman"], [["police kill the suspect", "gunman"]])
    assert several == pytest.approx(100 * (1 + b) * p * r / (r + b * p))


@given(st.lists(st.sampled_from("abc"), max_size=7), st.lists(st.sampled_from("abc"), max_size=7))
def test_the_longest_common_subsequence(one, other):
    def slow(x, y):
        if not x or not y:
            return 0
        return slow(x[1:], y[1:]) + 1 if x[0] == y[0] else max(slow(x[1:], y), slow(x, y[1:]))

    assert longest_common_subsequence(tuple(one), tuple(other)) == slow(one, other)


TEXTS = ["a man rides a brown horse", "two dogs play in the snow", "a child jumps over a red ball today"]


def test_what_equals_a_reference_is_best():
    references = [[text, "something else altogether is written here"] for text in TEXTS]
    assert all(bleu(TEXTS, references, n) == pytest.approx(100) for n in (1, 2, 3, 4))
    assert rouge(TEXTS, references) == pytest.approx(100)
    assert cider(TEXTS, [[text] for text in TEXTS]) == pytest.approx(10)
    assert caption_scores(TEXTS, references)["exact"] == 1.0


def test_what_has_nothing_in_common_is_worst():
    outputs, references = ["ξ ψ ζ ω"] * 3, [[text] for text in TEXTS]  # no letter in common either
    assert caption_scores(outputs, references) == {"bleu": 0, "cider": 0, "rouge": 0, "chrf": 0, "exact": 0}
    assert caption_scores(["", "", ""], references) == {"bleu": 0, "cider": 0, "rouge": 0, "chrf": 0, "exact": 0}


def unordered(outputs, references):
    """Return all scores but chrF: of two equally near references, sacreBLEU takes the first."""
    return {name: value for name, value in caption_scores(outputs, references).items() if name != "chrf"}


@given(st.randoms(use_true_random=False))
def test_the_order_of_references_and_of_pictures_changes_nothing(rng):
    texts = [" ".join(rng.choice("abcdef") for _ in range(rng.randint(1, 8))) for _ in range(12)]
    outputs, references = texts[:3], [texts[3 + 3 * i : 6 + 3 * i] for i in range(3)]
    before = unordered(outputs, references)
    order = rng.sample(range(3), 3)
    after = unordered([outputs[i] for i in order], [rng.sample(references[i], 3) for i in order])
    assert after == pytest.approx(before)
    assert 0 <= before["bleu"] <= 100
    assert 0 <= before["rouge"] <= 100 + 1e-9
    assert 0 <= before["cider"] <= 10 + 1e-9


def test_nothing_is_nothing():
    assert caption_scores([], []) == {"bleu": 0.0, "cider": 0.0, "rouge": 0.0, "chrf": 0.0, "exact": 0.0}


def test_one_picture_has_no_rare_words():
    assert cider(["a dog runs fast"], [["a dog runs fast"]]) == 0.0


def test_what_does_not_fit_is_refused():
    with pytest.raises(ArgumentError, match="2 given for 1 outputs"):
        cider(["a"], [["a"], ["b"]])
    with pytest.raises(ArgumentError, match="none given for output 0"):
        rouge(["a"], [[]])
    with pytest.raises(ArgumentError, match="n: 5"):
        bleu(["a"], [["a"]], 5)
