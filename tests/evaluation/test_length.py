"""BLEU by length: every sentence in one bucket, and each bucket's score that of its sentences."""

import random

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation.length import FEW, by_length, lengths_of
from regard.evaluation.text import measure_bleu, measure_exact


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.sampled_from([None, 1, 7, 10]))
def test_each_sentence_is_in_one_bucket(sizes, width):
    sources = [" ".join(["w"] * size) for size in sizes]
    lengths, unit = lengths_of(sources)
    found = by_length(measure_exact(sources, sources), sources, width=width, resamples=2)
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
    found = by_length(measure_bleu(outputs, sources), sources, width=10)
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
    return [bucket.name for bucket in by_length(measure_exact(sources, sources), sources, width=width).buckets]


def test_names_and_widths():
    assert names([*range(1, 60)] * 3) == ["1–9", "10–19", "20–29", "30–39", "40–49", "50–59"]
    assert names([*range(1, 13)] * 9) == ["1", "2–3", "4–5", "6–7", "8–9", "10–11", "12–13"]
    assert names([*range(1, 30)] * 50 + [900]) == ["1–4", "5–9", "10–14", "15–19", "20–24", "25+"]
    assert names([0, 3, 25, 25], width=10) == ["0", "1–9", "20–29"]
    assert names([1, 2, 3]) == ["1", "2", "3"]


def test_without_spaces_characters_are_counted():
    assert lengths_of(["今天下雨", "", "你好 "]) == ([4, 0, 2], "characters")
    assert lengths_of(["今天 下雨", "你好"]) == ([2, 1], "words")
    assert lengths_of([]) == ([], "characters")
