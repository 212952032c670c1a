"""Replayed searches: which ones, and in which precision; on a GPU, they find what `search` finds."""

import gc
import math
import random
from dataclasses import replace

import pytest
import torch
from decoding.cases import SMALL, WORDS, closest_choice, same, sentences, small

from regard.attention import watch
from regard.data import END, START
from regard.decoding.batches import FEW, SEARCH, describe, host_features, search_in_batches
from regard.decoding.options import GREEDY, Candidate, Options, SearchResult
from regard.decoding.replay import (
    CLASSES,
    GRAPHS,
    PLACES,
    SHARE,
    WIDER,
    Replay,
    SlotQueue,
    SlotSearch,
    count_slots,
    length_class,
    slot_index,
)
from regard.decoding.scoring import tokens_of
from regard.decoding.sentence_search import search
from regard.errors import ArgumentError

CUDA = torch.device("cuda")


def test_which_searches_are_replayed():
    model = small("transformer")

    def replayed(count=FEW, options=GREEDY, device="cuda", trace=False):
        return SEARCH.choose(describe(model, count, options, device, trace)).name == "replayed"

    assert replayed()
    assert replayed(options=Options())
    assert replayed(1000 * FEW)
    assert not replayed(device="cpu")
    assert not replayed(FEW - 1)
    assert not replayed(trace=True)
    for option in ({"sample": True}, {"coverage_penalty": 0.2}, {"no_repeat": 3}, {"groups": 5}):
        assert not replayed(options=Options(**option))
        assert host_features(Options(**option))
    with watch(model):  # a graph runs no hooks
        assert not replayed()
    model.replays = False
    assert SEARCH.plan(describe(model, 1, Options(), "cuda")).reasons["replayed"] == (
        f"it does not serve a model whose steps wait for the host; a graph pays for {FEW} sentences and more"
    )


def test_classes_of_length():
    assert [length_class(length) for length in (1, 16, 17, 1024, 1025)] == [16, 16, 32, 1024, 1025]
    assert list(CLASSES) == sorted(CLASSES)


# ---- the host's side: which search is reused, which sentences share one, which come next


@pytest.mark.parametrize("slots", [1, 3, 9, 100])
@pytest.mark.parametrize("kind", ["transformer", "rnnsearch", "both"])
def test_through_slots_is_searched(kind, slots):
    """Without graphs, on a CPU: more sentences than slots, of two length classes, with and without prefixes."""
    model, beam = small(kind), random.choice([1, 3])
    sources = [*sentences(12, 14), [], *(source + [3] * 16 for source in sentences(5, 14))]
    options = Options(beam=beam, nbest=beam, longest=9, precision="fp32")
    prefixes = [[random.randrange(3, WORDS) for _ in range(random.randint(0, 3))] for _ in sources]
    replay = Replay(model, rows=slots * beam)
    for begun in (None, prefixes):
        results = replay.search(sources, options, begun)
        assert results.pop(12).outputs[0].tokens == []
        some = [source for source in sources if source]
        given = None if begun is None else begun[:12] + begun[13:]
        same(results, search(model, tokens_of(some), options, prefixes=given))
    assert {key[1] for key in replay.graphs} == {16, 32}
    assert all(graph.device_search.count <= slots for graph in replay.graphs.values())


def test_nothing_is_made_for_a_sentence_before_its_result(monkeypatch):
    """Thousands of objects would trigger garbage collection, which takes longer than all other work on the host."""
    made = []

    def run(search, *given, run=SlotSearch.run):
        made.append(sum(type(each) is SearchResult for each in gc.get_objects()))
        return run(search, *given)

    monkeypatch.setattr(SlotSearch, "run", run)
    gc.collect()
    before = sum(type(each) is SearchResult for each in gc.get_objects())
    results = Replay(small("transformer")).search([*sentences(40), []], GREEDY)
    assert made[0] == before
    assert results[-1].outputs[0].tokens == []
    assert len(results) == 41


def test_a_budget_is_counted_for_each_hypothesis():
    model, sources, slots = small("transformer"), sentences(20, 7), []
    replay, options = Replay(model), Options(beam=2, longest=4, precision="fp32")
    for budget in (17 * 2 * 5, 17 * 2 * 3 - 1, 1):  # sources of this class have at most 16 tokens and END
        replay.graphs.clear()
        replay.search(sources, options, budget=budget)
        slots.append(next(iter(replay.graphs.values())).device_search.count)
    assert slots == [5, 2, 1]


def test_an_earlier_search_serves_again_unless_it_is_much_too_large():
    model, options = small("transformer"), Options(beam=1, longest=4, precision="fp32")
    replay = Replay(model)
    replay.search(sentences(16, 7), options)
    (first,) = replay.graphs.values()
    assert first.device_search.count == 16
    for count in (9, 16, 16 // WIDER, 3):  # 4 are needed for three
        replay.search(sentences(count, 7), options)
        assert list(replay.graphs.values()) == [first], count
    replay.search(sentences(16 // WIDER // 2, 7), options)  # too few for it
    replay.search(sentences(17, 7), options)  # too many
    assert [graph.device_search.count for graph in replay.graphs.values()] == [16, 2, 32]
    replay.search(sentences(16, 7), replace(options, longest=5))  # more steps need another search
    assert len(replay.graphs) == 4


def test_the_oldest_search_is_let_go():
    replay = Replay(small("transformer"))
    for longest in range(1, GRAPHS + 3):
        replay.search(sentences(2, 7), Options(beam=1, longest=longest, precision="fp32"))
    assert [key[2] for key in replay.graphs] == [longest + 1 for longest in range(3, GRAPHS + 3)]


def test_what_is_a_number_of_a_slot_asks_for_no_other_search():
    """Length penalty, shortest, n-best and equally long prefixes are slot values: mixed calls capture once."""
    model, sources = small("transformer"), sentences(6, 7)
    replay, options = Replay(model), Options(beam=3, longest=6, precision="fp32")
    prefixes = [[3] * (i % 4 + 1) for i in range(6)]
    replay.search(sources, options)
    for others in ({"length_penalty": 0.0}, {"shortest": 3}, {"nbest": 3}):
        changed = replace(options, **others)
        same(replay.search(sources, changed), search(model, tokens_of(sources), changed))
    assert len(replay.graphs) == 1
    for longest in (3, 4):
        some = [prefix[:longest] for prefix in prefixes]
        same(replay.search(sources, options, some), search(model, tokens_of(sources), options, prefixes=some))
    assert len(replay.graphs) == 2


def test_weights_that_change_are_copied_anew():
    model = small("transformer", dtype=torch.float32)
    replay, options = Replay(model), Options(beam=1, longest=4)
    copy = replay.weights(True)
    assert replay.weights(True) is copy
    assert replay.weights(False) is model
    replay.search(sentences(2, 7), options)
    assert replay.graphs
    with torch.no_grad():
        model.readout.bias[7] += 1
    assert replay.weights(False) is model
    assert replay.graphs
    assert replay.weights(True) is not copy
    assert not replay.graphs  # they used the old copy


@pytest.mark.parametrize(
    ("most", "each", "free", "count"),
    [(8, 10, None, 8), (8, 10, 10 * 8 * SHARE, 8), (8, 10, 10 * 8 * SHARE - 1, 7), (8, 10, 5, 1), (1, 10, 10**9, 1)],
)
def test_slots_take_a_share_of_the_memory(most, each, free, count):
    assert count_slots(most, each, free) == count


def test_there_are_no_more_slots_than_allowed():
    replay = Replay(small("transformer"), rows=10**9)
    made = []

    class Made:
        def __init__(self, model, most, *rest):
            made.append(most)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.decoding.replay.SlotSearch", Made)
        for count in (1, 2, 3, 1000, 10**6):
            replay.graphs.clear()
            replay.graph(replay.model, count, 16, 9, 0, 1, 10**9)
    assert made == [1, 2, 4, 1024, PLACES]


def test_the_queue_fills_what_is_free():
    queue = SlotQueue(5, 2)
    assert queue.fill() == ([0, 1], [0, 1])
    assert queue.fill() == ([], [])
    assert (queue.unfinished, queue.enough) == (True, 1)
    assert queue.done([True, False]) == [1]
    assert queue.finish([1]) == [1]
    assert queue.fill() == ([1], [2])
    assert queue.done([False, False]) == [0, 1]
    assert queue.finish([0, 1]) == [0, 2]
    assert queue.fill() == ([0, 1], [3, 4])
    queue.finish([0, 1])
    assert not queue.unfinished


def test_a_few_that_are_done_are_not_enough_while_others_wait():
    queue = SlotQueue(30, 24)
    assert queue.enough == 3
    assert len(queue.fill()[0]) == 24
    assert queue.enough == 3
    queue.finish([3, 7, 11, 13, 17, 19])
    assert queue.fill() == ([3, 7, 11, 13, 17, 19], [24, 25, 26, 27, 28, 29])
    assert queue.enough == 1  # no sentence is waiting


def test_free_slots_are_taken_in_order():
    """Writing to neighbouring slots is faster."""
    queue = SlotQueue(9, 4)
    queue.fill()
    queue.finish([2])
    queue.finish([0, 3])
    assert queue.fill() == ([0, 2, 3], [4, 5, 6])


def test_neighbours_are_a_slice():
    cpu = torch.device("cpu")
    assert slot_index([2, 3, 4], cpu) == slice(2, 5)
    assert slot_index([6], cpu) == slice(6, 7)
    assert slot_index([2, 4], cpu).tolist() == [2, 4]


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("kind", [*SMALL, "both"])
def test_replayed_is_searched(kind, beam, without_tf32):
    """More sentences than slots, of every length; in float32, ties may fall either way."""
    # Large weights make input feeding chaotic: after a hundred tokens float32 can differ from float64 by 0.1.
    scale = 0.5 if SMALL.get(kind, {}).get("kind") == "luong" else 2.0
    model = small(kind, words=60, scale=scale, dtype=torch.float32).to(CUDA)
    sources = [*sentences(90, longest=40, words=60), []]
    prefixes = [[random.randrange(3, 60) for _ in range(random.randint(0, 2))] for _ in sources]
    options = Options(beam=beam, nbest=beam, precision="fp32")
    for begun in (None, prefixes):
        found = Replay(model, rows=32 * beam).search(sources, options, begun)
        starts = None if begun is None else begun[:-1]
        expected = search(model, tokens_of(sources[:-1], CUDA), options, prefixes=starts, trace=True)
        best = [(a.outputs[0], b.outputs[0]) for a, b in zip(found, expected, strict=False)]
        equal = [a.tokens == b.tokens for a, b in best]
        assert sum(equal) >= 85
        assert max(abs(a.score - b.score) for (a, b), alike in zip(best, equal, strict=True) if alike) < 1e-3
        for source, (a, b), alike, searched in zip(sources, best, equal, expected, strict=False):
            if not alike and beam == 1:
                assert gap(model, source, a.tokens, b.tokens) < 1e-4  # greedy search continues from a tie
            elif not alike:  # another hypothesis was dropped, or both outputs are equally good
                assert min(closest_choice(searched.steps, beam), abs(a.score - b.score)) < 1e-4
        assert found[-1].outputs[0].tokens == []


def test_the_closest_choice_of_a_search():
    def step(*log_probs, end=None):
        return [Candidate(0, END if i == end else 7, each, "kept", 0) for i, each in enumerate(log_probs)]

    assert closest_choice([step(-1.0, -2.0, -2.5), step(-1.0, -3.0, -9.0)], 2) == pytest.approx(0.5)
    assert closest_choice([step(-1.0, -2.0)], 2) == math.inf  # no candidate was left out
    assert closest_choice([step(-1.0, -2.0, -2.5, -2.6, end=1)], 2) == pytest.approx(0.1)  # among those that continue
    assert closest_choice([step(-1.0, -2.0, -2.1, -4.0, end=1)], 2) == pytest.approx(0.1)  # END against the next


def gap(model, source, one, other):
    """Return the difference of two tokens' log-probabilities where two outputs diverge."""
    one, other = [*one, END], [*other, END]
    at = next(place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    device = next(model.parameters()).device
    state = model.start(model.encode(tokens_of([source], device)), 1, at + 2)
    for token in [START, *one[:at]]:
        logits, state = model.step(torch.tensor([token], device=device), state)
    scores = logits[0].log_softmax(-1)
    return abs(scores[one[at]] - scores[other[at]]).item()


@torch.no_grad()
@pytest.mark.parametrize("kind", SMALL)
def test_outputs_part_by_the_gap_of_their_tokens(kind):
    """Compare an output with one whose third token differs, and with one that ends before it."""
    model, source = small(kind, words=60, dtype=torch.float64), sentences(1, longest=10, words=60)[0]
    tokens = [7, 9, 11]
    scores = model(tokens_of([source], "cpu"), tokens_of([[START, *tokens[:2]]], "cpu"))[0, 2].log_softmax(-1)
    for other, last in (([7, 9, 12, 5], 12), ([7, 9], END)):
        wanted = abs(scores[11] - scores[last]).item()
        assert gap(model, source, tokens, other) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.gpu
def test_graphs_serve_again_and_weights_may_change():
    model = small("transformer", words=60, scale=2.0, dtype=torch.float32).to(CUDA)
    sources, options = sentences(FEW, longest=12, words=60), Options(beam=3)
    replay = Replay(model)
    first = replay.search(sources, options)
    assert search_in_batches(model, sources, options, device=CUDA, replay=replay) == first
    assert replay.search(sources, options) == first
    kept = list(replay.graphs.values())
    with torch.no_grad():
        model.readout.bias[7] += 200.0
    changed = replay.search(sources, options)
    assert all(7 in found.outputs[0].tokens for found in changed)
    assert not set(map(id, replay.graphs.values())) & set(map(id, kept))


@pytest.mark.gpu
@pytest.mark.unchecked
def test_prefixes_that_do_not_fit():
    model = small("transformer", dtype=torch.float32).to(CUDA)
    sources = sentences(FEW)
    with pytest.raises(ArgumentError, match="prefixes: 1 given"):
        search_in_batches(model, sources, prefixes=[[3]], device=CUDA)
    with pytest.raises(ArgumentError, match="prefix: token 99 given, expected less than 11"):
        search_in_batches(model, sources, prefixes=[[99]] * FEW, device=CUDA)
    with pytest.raises(ArgumentError, match="prefix: 3 tokens given, expected at most 2"):
        search_in_batches(model, sources, Options(longest=2), prefixes=[[3, 3, 3]] * FEW, device=CUDA)
