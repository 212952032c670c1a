"""Slots: a search that never asks the host finds what `search` finds, whatever comes in place of what is done."""

import random

import pytest
import torch
from decoding.cases import SMALL, WORDS, sentences, small
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decoding.device_search import DeviceSearch
from regard.decoding.limits import output_limits
from regard.decoding.options import Options
from regard.decoding.search import search
from regard.decoding.sources import tokens_of

LONGEST = 7


@torch.no_grad()
def by_slots(model, sources, options, prefixes=None, count=3, together=1):
    """Sentences through a few slots: `together` at a time come into what is free."""
    memory = model.encode(tokens_of([[3] * LONGEST]))
    most = max(int(output_limits(model, tokens_of([each]), options).max()) for each in sources)
    longest = max((len(prefix) for prefix in prefixes or ()), default=0)
    device_search = DeviceSearch(model, memory, count, max(most, longest + 20) + 1, options, longest)
    waiting, inside, found = list(range(len(sources))), [None] * count, {}
    while waiting or any(each is not None for each in inside):
        free = [slot for slot, each in enumerate(inside) if each is None]
        while waiting and len(free) >= min(together, len(waiting)):
            chosen, free = free[:together], free[together:]
            chosen = chosen[: len(waiting)]
            numbers = [waiting.pop(0) for _ in chosen]
            batch = tokens_of([sources[i] for i in numbers])
            begun = None if prefixes is None else [prefixes[i] for i in numbers]
            given_ = None if begun is None or not any(begun) else tokens_of(begun, fill=-1).ids
            neighbours = chosen[-1] - chosen[0] + 1 == len(chosen)
            index = slice(chosen[0], chosen[-1] + 1) if neighbours else torch.tensor(chosen)
            device_search.put(index, model.encode(batch), output_limits(model, batch, options, begun), given_)
            for slot, i in zip(chosen, numbers, strict=True):
                inside[slot] = i
        device_search.advance()
        for slot, going in enumerate(device_search.active.tolist()):
            if inside[slot] is not None and not going:
                found[inside[slot]] = device_search.collect(torch.tensor([slot])).results(options.nbest)[0]
                inside[slot] = None
    return [found[i] for i in range(len(sources))]


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert [output.tokens for output in one.outputs] == [output.tokens for output in other.outputs]
        for mine, theirs in zip(one.outputs, other.outputs, strict=True):
            assert mine.finished == theirs.finished
            assert mine.log_prob == pytest.approx(theirs.log_prob, abs=1e-9)
            assert mine.score == pytest.approx(theirs.score, abs=1e-9)


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("kind", [*SMALL, "both"])
def test_every_model_in_slots(kind, beam):
    model, sources = small(kind), sentences(8, LONGEST)
    options = Options(beam=beam, nbest=beam, longest=9)
    same(by_slots(model, sources, options), search(model, tokens_of(sources), options))


@settings(max_examples=25)
@given(
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(4, 9),
    st.floats(0, 2),
    st.integers(1, 3),
    st.booleans(),
)
def test_every_option_in_slots(beam, shortest, longest, penalty, together, prefixed):
    model, sources = small("transformer"), sentences(6, LONGEST)
    options = Options(beam=beam, nbest=beam, shortest=shortest, longest=longest, length_penalty=penalty)
    prefixes = (
        [[random.randrange(3, WORDS) for _ in range(random.randint(0, 3))] for _ in sources] if prefixed else None
    )
    found = by_slots(model, sources, options, prefixes, together=together)
    same(found, search(model, tokens_of(sources), options, prefixes=prefixes))


def test_lengths_by_the_source():
    model, sources = small("rnnsearch"), sentences(5, LONGEST)
    same(by_slots(model, sources, Options()), search(model, tokens_of(sources), Options()))


def test_a_vocabulary_smaller_than_the_beam():
    model, sources = small("transformer", words=5), [[3, 4], [4]]
    options = Options(beam=6, nbest=6, longest=3)
    same(by_slots(model, sources, options), search(model, tokens_of(sources), options))


def test_a_slot_that_is_done_waits_without_effect():
    model, options = small("transformer"), Options(beam=2, nbest=2, longest=4)
    with torch.no_grad():
        device_search = DeviceSearch(model, model.encode(tokens_of([[3] * LONGEST])), 2, 5, options)
        assert not device_search.active.any()
        batch = tokens_of([[3, 4, 5]])
        device_search.put(slice(1, 2), model.encode(batch), output_limits(model, batch, options))
        for _ in range(30):  # many more steps than there is room for
            device_search.advance()
        assert not device_search.active.any()
        found = device_search.collect(slice(0, 2)).results(2)
    assert found[0].outputs == []
    same(found[1:], search(model, batch, options))


def test_states_keep_their_addresses():
    """What a graph holds are addresses: a step, a sentence put in and one taken out move nothing."""
    model, options = small("transformer"), Options(beam=2, longest=4)
    with torch.no_grad():
        device_search = DeviceSearch(model, model.encode(tokens_of([[3] * LONGEST])), 2, 5, options)
        before = {
            name: value.data_ptr() for name, value in vars(device_search).items() if isinstance(value, torch.Tensor)
        }
        batch = tokens_of([[3, 4, 5], [6]])
        device_search.put(torch.tensor([0, 1]), model.encode(batch), output_limits(model, batch, options))
        device_search.advance()
        device_search.collect(torch.tensor([1]))
        after = {
            name: value.data_ptr() for name, value in vars(device_search).items() if isinstance(value, torch.Tensor)
        }
    assert before == after
