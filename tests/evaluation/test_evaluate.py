"""All scores of a system together."""

import json
import math
from pathlib import Path

import pytest

from regard.errors import ArgumentError
from regard.evaluation.contrast import contrasts
from regard.evaluation.evaluate import evaluate
from regard.evaluation.items import Items
from regard.evaluation.kinds import METRICS, OF_TEXT, chosen, measure, too_long
from regard.evaluation.likelihood import perplexity
from regard.evaluation.text import bleu, chrf

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


def test_metrics_by_name():
    assert chosen("BLEU, token-errors,bleu", METRICS) == ["bleu", "token_errors"]
    for wrong, said in (
        ("blue", "'blue' given, no such metric; did you mean 'bleu'?"),
        ("", "'' given, no such metric;"),
    ):
        with pytest.raises(ArgumentError) as error:
            chosen(wrong, METRICS)
        assert str(error.value).startswith(f"metrics: {said}")
    named = {key: measure(key, OUTPUTS, REFERENCES) for key in OF_TEXT}
    assert len({each.name for each in named.values()}) == len(OF_TEXT)
    assert {key for key, each in named.items() if not each.higher} == {"ter", "character_errors", "token_errors"}
    assert measure("character_errors", ["A"], ["a"], lowercase=True).score().value == 0


def test_text_that_is_too_long_for_ter():
    assert not too_long(["a b c"] * 3000)
    assert too_long([("a " * 1000, "a " * 1000)])


def test_where_two_systems_differ():
    references = [("one two", "uno dos"), "three four", "five", "six seven"]
    a, b = ["uno dos", "three for", "five", "x"], ["uno", "three four", "five", "six seven"]
    worse, better = contrasts(["1 2", "3 4", "5", "6 7"], references, a, b, count=2)
    assert [each.number for each in worse] == [1]
    assert (worse[0].source, worse[0].reference, worse[0].a, worse[0].b) == ("1 2", "uno dos", "uno dos", "uno")
    assert worse[0].a_chrf == 100
    assert [each.number for each in better] == [4, 2]  # the largest difference first
    assert better[1].a_chrf == chrf(["three for"], ["three four"])
    assert contrasts(["1"], ["x"], ["y"], ["y"]) == ([], [])
    assert contrasts(["1"], ["x"], ["y"], ["x"], count=0) == ([], [])
