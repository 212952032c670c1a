"""All scores of a system together; by length, every sentence in one bucket, and each bucket's score that of its own."""

import json
import math
import random
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.evaluation.evaluation import FEW, evaluate, measure_lengths, score_by_length
from regard.evaluation.items import Items
from regard.evaluation.text import bleu, measure_bleu, measure_exact, perplexity

REFERENCES = ["the cat is here", "a dog barks", "nothing"]
OUTPUTS = ["the cat is there", "a dog barks", ""]
ITEMS = Items(Path("r"), ["le chat est là", "un chien aboie", ""], [(text,) for text in REFERENCES], [0, 1, 2])


def test_everything_in_the_order_asked_for():
    found = evaluate(ITEMS, OUTPUTS, ["perplexity", "exact", "bleu", "lengths"], tokens=[[-1.0, -2.0], [-3.0]])
    assert list(found.scores) == ["perplexity", "exact", "bleu"]
    assert found.scores["perplexity"].value == pytest.approx(math.exp(2))
    assert found.scores["perplexity"].signature == "tokens:3"
    assert found.scores["exact"].value == 1 / 3
    assert found.scores["bleu"].value == found.lengths.value == bleu(OUTPUTS, REFERENCES)
    assert found.counted() == "3 sentences, 1 of them with an empty source"
    table = json.loads(json.dumps(found.table(), allow_nan=False))
    assert table["scores"]["bleu"]["value"] == bleu(OUTPUTS, REFERENCES)
    assert sum(bucket["sentences"] for bucket in table["lengths"]["buckets"]) == 3


def test_only_lengths_and_only_perplexity():
    assert evaluate(ITEMS, OUTPUTS, ["lengths"]).scores == {}
    found = evaluate(ITEMS, None, ["perplexity"], tokens=[[-5000.0]], tokenizer="bpe[9]")
    assert str(found.scores["perplexity"]) == "inf"
    assert found.table()["scores"]["perplexity"]["value"] is None
    assert found.scores["perplexity"].signature == "tok:bpe[9]|tokens:1"
    assert math.isnan(perplexity([]).value)


def test_what_is_missing():
    with pytest.raises(ArgumentError, match="outputs: 2 given, expected one for each of 3 items"):
        evaluate(ITEMS, OUTPUTS[:2], ["bleu"])
    with pytest.raises(ArgumentError, match="outputs: none given, expected them for bleu, ter"):
        evaluate(ITEMS, None, ["bleu", "ter"])
    with pytest.raises(ArgumentError, match="lengths: no sources given"):
        evaluate(Items(Path("r"), None, ITEMS.references, [0, 1, 2]), OUTPUTS, ["lengths"])


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.sampled_from([None, 1, 7, 10]))
def test_each_sentence_is_in_one_bucket(sizes, width):
    sources = [" ".join(["w"] * size) for size in sizes]
    lengths, unit = measure_lengths(sources)
    found = score_by_length(measure_exact(sources, sources), sources, width=width, resamples=2)
    assert found.unit == unit
    for bucket in found.buckets:
        inside = [size for size in lengths if bucket.first <= size and (bucket.last is None or size <= bucket.last)]
        assert len(inside) == bucket.sentences > 0
        assert (bucket.interval is None) == (bucket.sentences < FEW)
    assert sum(bucket.sentences for bucket in found.buckets) == len(sizes)
    firsts = [bucket.first for bucket in found.buckets]
    assert firsts == sorted(set(firsts))
    assert all(bucket.last is not None for bucket in found.buckets[:-1])


def test_a_buckets_score_is_that_of_its_sentences():
    draw = random.Random(0)
    sources = [" ".join(draw.choices("abcdefgh", k=draw.randint(1, 39))) for _ in range(200)]
    outputs = [" ".join(w if draw.random() < 0.8 else "x" for w in text.split()) for text in sources]
    found = score_by_length(measure_bleu(outputs, sources), sources, width=10)
    assert [bucket.name for bucket in found.buckets] == ["1–9", "10–19", "20–29", "30–39"]
    for bucket in found.buckets:
        chosen = [i for i, text in enumerate(sources) if len(text.split()) // 10 == bucket.first // 10]
        some = [outputs[i] for i in chosen], [[sources[i] for i in chosen]]
        assert bucket.value == pytest.approx(sacrebleu.BLEU(force=True).corpus_score(*some).score)
        low, high = bucket.interval
        assert low < bucket.value < high
    assert found.value == sacrebleu.BLEU(force=True).corpus_score(outputs, [sources]).score


def names(sizes, width=None):
    sources = [" ".join(["w"] * size) for size in sizes]
    return [bucket.name for bucket in score_by_length(measure_exact(sources, sources), sources, width=width).buckets]


def test_names_and_widths():
    assert names([*range(1, 60)] * 3) == ["1–9", "10–19", "20–29", "30–39", "40–49", "50–59"]
    assert names([*range(1, 13)] * 9) == ["1", "2–3", "4–5", "6–7", "8–9", "10–11", "12–13"]
    assert names([*range(1, 30)] * 50 + [900]) == ["1–4", "5–9", "10–14", "15–19", "20–24", "25+"]
    assert names([0, 3, 25, 25], width=10) == ["0", "1–9", "20–29"]
    assert names([1, 2, 3]) == ["1", "2", "3"]


def test_without_spaces_characters_are_counted():
    assert measure_lengths(["今天下雨", "", "你好 "]) == ([4, 0, 2], "characters")
    assert measure_lengths(["今天 下雨", "你好"]) == ([2, 1], "words")
    assert measure_lengths([]) == ([], "characters")
