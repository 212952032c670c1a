"""The metric that is chosen moves: better outputs score better on what it is chosen for."""

import random

import pytest

from regard.evaluation import caption_scores, text_scores
from regard.tasks.metric_choice import caption_metric, label_metric, translation_metric

SCORES = {"bleu": text_scores.bleu, "chrf": text_scores.chrf, "exact": text_scores.exact}
DRAW = random.Random(3)


def words(letters, count, low, high, length=(3, 9)):
    return [
        " ".join("".join(DRAW.choices(letters, k=DRAW.randint(*length))) for _ in range(DRAW.randint(low, high)))
        for _ in range(count)
    ]


LATIN, HAN, THAI, ARABIC = (
    "abcdefghijklmnop",
    "的一是不了人我在有他这中大来上国",
    "กขคงจฉชซญดตถทธนบป",
    "ابتثجحخدذرزسشصضط",
)
CORPORA = {
    "names": (words(LATIN, 300, 1, 1), "exact"),
    "arabic names": (words(ARABIC, 300, 1, 2), "exact"),
    "sentences": (words(LATIN, 300, 6, 20), "bleu"),
    "letters apart": (words(LATIN, 300, 3, 9, (1, 1)), "exact"),
    "long lines of letters": (words(LATIN, 100, 60, 90, (1, 1)), "chrf"),
    "chinese": (words(HAN, 300, 1, 1, (8, 30)), "chrf"),
    "thai phrases": (words(THAI, 300, 4, 7, (8, 20)), "chrf"),
    "chinese cut into words": (words(HAN, 300, 6, 20, (1, 2)), "bleu"),
    "one answer": (["yes"] * 50, "exact"),
    "one reference": (["so it is"], "exact"),
}


@pytest.mark.parametrize("name", CORPORA)
def test_what_suits_the_references_can_move(name):
    references, metric = CORPORA[name]
    assert translation_metric(references) == metric
    score = SCORES[metric]
    half = [text if i % 2 else "x" for i, text in enumerate(references)]
    assert score(["x"] * len(references), references) <= score(half, references) < score(references, references)
    if len(references) > 1:
        assert score(half, references) > 0


def test_where_bleu_cannot_move_it_is_not_chosen():
    for references, metric in CORPORA.values():
        if text_scores.bleu(references, references) == 0:
            assert metric != "bleu"


def test_nothing_held_out_leaves_the_loss():
    assert translation_metric([]) == caption_metric([]) == label_metric([]) == "loss"
    assert translation_metric(["", " "]) == "loss"


def test_captions_short_and_long_and_few():
    long = [words(LATIN, 5, 6, 10) for _ in range(60)]
    assert caption_metric(long) == "cider"
    assert caption_metric(long[:10]) == "chrf"
    assert caption_metric([["red dog", "a dog"]] * 60) == "exact"
    assert caption_metric([words(HAN, 5, 1, 1, (8, 20)) for _ in range(60)]) == "chrf"
    outputs = [each[0] for each in long]
    assert caption_scores(outputs, long)["cider"] > caption_scores(["x"] * 60, long)["cider"] == 0


def test_labels_that_are_alike_rare_or_missing():
    assert label_metric([0, 1] * 20) == "accuracy"
    assert label_metric([0] * 95 + [1] * 5) == "f1"  # calling all of them 0 is 95 % right
    assert label_metric([1] * 40) == "loss"
