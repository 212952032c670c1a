"""Which head reads as an alignment: planted heads are found, and the error rates equal those of a plain count."""

import random

import pytest
import torch
from alignment.planted import TOKENIZERS, Planted, pairs

from regard.alignment.extraction import AlignmentSettings, link_words
from regard.alignment.selection import choose_by_agreement, choose_by_gold, score_heads
from regard.errors import ArgumentError
from regard.evaluation import Gold, measure_links

SIZES = [1, 7, 3, 2, 9, 5, 1, 12]


@pytest.fixture
def drawn():
    found, gold = pairs(SIZES, random.Random(torch.initial_seed()))
    return found, [Gold(each, frozenset()) for each in gold]


@pytest.mark.parametrize(
    ("layers", "view", "head", "offset"),
    [
        ([(None, 0, None), (None, None, None)], 0, 1, 0),
        ([(None, None), (None, None), (1, None)], 2, 0, 1),
        ([(None,), (0,)], 1, 0, 0),
    ],
)
def test_the_planted_head_is_found(drawn, layers, view, head, offset):
    model = Planted(*layers)
    chosen, readings = choose_by_gold(model, TOKENIZERS, *drawn)
    assert (chosen.view, chosen.head, chosen.offset) == (f"layers.{view}.cross", head, offset)
    assert chosen.aer == 0
    assert (chosen.threshold, chosen.join, chosen.balance) == (None, None, 0)  # the simplest of the correct settings
    assert chosen.by == "gold links of 8 pairs"
    assert len(readings) == 2 * sum(len(heads) + 1 for heads in layers)
    assert link_words(model, TOKENIZERS, drawn[0], chosen) == [
        sorted(each.sure, key=lambda link: link[1]) for each in drawn[1]
    ]


def test_every_rate_is_that_of_the_links(drawn):
    """Compare one pass over all heads with the links of each head alone; some gold links are only possible."""
    found, gold = drawn
    gold = [Gold(frozenset(sorted(each.sure)[::2]), frozenset(sorted(each.sure)[1::2]) | {(0, 0)}) for each in gold]
    model = Planted((None, 0), (1, None))
    for reading in score_heads(model, TOKENIZERS, found, gold):
        alone = link_words(model, TOKENIZERS, found, AlignmentSettings(reading.view, reading.head, reading.offset))
        rates = {key: each.score().value for key, each in measure_links(alone, gold).items()}
        assert reading.aer == pytest.approx(rates["aer"])
        assert reading.precision == pytest.approx(rates["precision"])
        assert reading.recall == pytest.approx(rates["recall"])


def test_two_directions_find_each_other(drawn):
    """Without gold links, the two heads that look at the same words agree best."""
    found = drawn[0]
    turned = [(target, source) for source, target in found]
    forward, backward = Planted((None, None), (0, None)), Planted((None, None, 1))
    both, readings = choose_by_agreement((forward, TOKENIZERS, found), (backward, TOKENIZERS, turned))
    assert [(each.view, each.head, each.offset) for each in both] == [
        ("layers.1.cross", 0, 0),
        ("layers.0.cross", 2, 1),
    ]
    assert both[0].aer == both[1].aer == 0
    assert both[0].by == "agreement with a reverse run on 8 pairs"
    assert [len(each) for each in readings] == [12, 8]


def test_agreement_is_the_error_rate_of_one_against_the_other(drawn):
    found = drawn[0]
    turned = [(target, source) for source, target in found]
    forward, backward = Planted((None,)), Planted((None,))
    _, readings = choose_by_agreement((forward, TOKENIZERS, found), (backward, TOKENIZERS, turned))
    for side, (model, own, other, others) in enumerate(
        ((forward, found, backward, turned), (backward, turned, forward, found))
    ):
        for reading in readings[side]:
            mine = link_words(model, TOKENIZERS, own, AlignmentSettings(reading.view, reading.head, reading.offset))
            rates = []
            for each in readings[1 - side]:
                theirs = link_words(other, TOKENIZERS, others, AlignmentSettings(each.view, each.head, each.offset))
                gold = [Gold(frozenset((i, j) for j, i in links), frozenset()) for links in theirs]
                rates.append(measure_links(mine, gold)["aer"].score().value)
            assert reading.aer == pytest.approx(min(rates))


def test_gold_of_other_pairs(drawn):
    with pytest.raises(ArgumentError, match="gold: links of 8 pairs given, expected those of 7"):
        score_heads(Planted((0,)), TOKENIZERS, drawn[0][1:], drawn[1])
