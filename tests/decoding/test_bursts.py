"""Bursts without graphs: sentences are encoded into slots as `put` writes them, and the host reads a copy."""

import pytest
import torch
from decoding.cases import SMALL, sentences, small

from regard.decoding.options import Options
from regard.decoding.replay import BURST, WRITES, BurstSearch
from regard.decoding.scoring import tokens_of
from regard.decoding.sentence_search import search

KEYS = 8


def same(mine, theirs):
    for one, other in zip(mine.outputs, theirs.outputs, strict=True):
        tie = one.log_prob == pytest.approx(other.log_prob, abs=1e-12)  # as of "4 4 3" and "4 3 4" with ALiBi alone
        assert one.tokens == other.tokens or (tie and sorted(one.tokens) == sorted(other.tokens))
        assert one.score == pytest.approx(other.score, abs=1e-9)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-9)
        assert one.finished == other.finished


def take_burst(slots):
    slots.order()
    return slots.wait()


@pytest.mark.parametrize("kind", [*SMALL, "both"])
@torch.no_grad()
def test_sentences_that_are_read_are_searched(kind):
    """Encode fewer sentences than `together`, in any slots, each with its options; the other slots do not change."""
    model = small(kind)
    slots = BurstSearch(model, 5, KEYS, 13, 3, prefix=2, together=3)
    varied = [
        (Options(beam=3, nbest=3, longest=12), [4]),
        (Options(beam=2, nbest=1, longest=9, length_penalty=0.0), []),
        (Options(beam=1, shortest=4, longest=6), [5, 6]),
        (Options(beam=3, nbest=2, longest=12, length_penalty=1.3), []),
        (Options(beam=3, nbest=3, longest=1), [7]),
    ]
    sources, begun = sentences(5, KEYS), {}
    for numbers, places in (([0, 1], [4, 1]), ([2, 3, 4], [0, 3, 2])):
        each = [(sources[i], *varied[i]) for i in numbers]
        slots.put(places, *(list(part) for part in zip(*each, strict=True)))
        begun |= dict(zip(places, each, strict=True))
        copy = take_burst(slots)
    while any(copy.active):
        copy = take_burst(slots)
    places = list(begun)
    results = copy.finished(places).results([begun[place][1].nbest for place in places])
    for place, found in zip(places, results, strict=True):
        source, options, prefix = begun[place]
        (expected,) = search(model, tokens_of([source]), options, prefixes=[prefix])
        same(found, expected)


@torch.no_grad()
def test_nothing_is_active_before_the_first_sentence():
    slots = BurstSearch(small("transformer"), 3, KEYS, 9, 2)
    assert take_burst(slots).active == [False] * 3


@torch.no_grad()
def test_the_host_reads_what_lives_and_what_it_read_stays():
    model = small("transformer")
    slots = BurstSearch(model, 2, KEYS, 30, 1)
    (source,) = sentences(1, KEYS)
    options = Options(beam=1, shortest=12, longest=12)
    slots.put([1], [source], [options], [[]])
    (expected,) = search(model, tokens_of([source]), options)
    tokens = expected.outputs[0].tokens
    for bursts in (1, 2):
        copy = take_burst(slots)
        assert copy.active == [False, True]
        (living,) = copy.living([1]).results(1)
        assert living.outputs[0].tokens == tokens[: bursts * BURST]
        assert copy.finished([1]).results(1)[0].outputs == []
    before = copy.living([1])
    take_burst(slots)
    assert before.results(1)[0].outputs[0].tokens == tokens[: 2 * BURST]


@torch.no_grad()
def test_each_burst_under_way_has_a_copy_of_its_own():
    slots = BurstSearch(small("transformer"), 1, KEYS, 30, 1, depth=2)
    slots.put([0], sentences(1, KEYS), [Options(beam=1, shortest=20, longest=20)], [[]])
    slots.order()
    slots.order()
    lengths = [len(slots.wait().living([0]).results(1)[0].outputs[0].tokens) for _ in range(2)]
    assert lengths == [BURST, 2 * BURST]
    rows = {id(slots.blanks[i][1]) for i in range(len(slots.blanks))}
    assert len(rows) == 2 * WRITES  # a buffer sent to the device lives until the device has read it


@torch.no_grad()
def test_a_slot_that_is_stopped_is_done():
    slots = BurstSearch(small("transformer"), 2, KEYS, 30, 2, together=2)
    slots.put([0, 1], sentences(2, KEYS), [Options(beam=2, shortest=20, longest=20)] * 2, [[], []])
    slots.stop(0)
    assert take_burst(slots).active == [False, True]
