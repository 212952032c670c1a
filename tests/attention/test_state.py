"""State: a decoder's tensors of sentences and hypotheses, reordered, replaced, shrunk and spread."""

import pytest
import torch

from regard.attention import Heads, Prepared
from regard.attention.cache import SharedBeamCache, State, buffers, repeat_cache_rows
from regard.errors import ArgumentError, ShapeError


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def filled(heads, sentences, rows=1, keys=4):
    """Return a random state: lengths and a memory per sentence, a hidden vector and a past per hypothesis."""
    memory = heads.prepare(torch.randn(sentences, keys, 8))
    past = heads.cache(sentences * rows, 5)
    past.extend(heads.prepare(torch.randn(sentences * rows, 2, 8)))
    sentence = {"lengths": torch.randint(1, keys + 1, (sentences,)), "memory": memory}
    return State(sentence, {"hidden": torch.randn(sentences * rows, 3), "past": past}, rows)


def copy_of(state):
    """Copy every tensor of a state, a past without the unused part of its buffer."""
    parts = {**state.sentence, **state.row}
    ready = {name: part.contents() if name == "past" else part for name, part in parts.items()}
    return {name: [buffer.clone() for buffer in buffers(part)] for name, part in ready.items()}


def test_select_reorders_hypotheses_and_leaves_sentences():
    state = filled(Heads(8, heads=2), 2, rows=3)
    before, rows = copy_of(state), torch.tensor([2, 2, 0, 3, 5, 4])
    hidden, past = state.row["hidden"].data_ptr(), state.row["past"]
    state.select_(rows)
    after = copy_of(state)
    for name in ("lengths", "memory"):
        assert all(map(torch.equal, after[name], before[name])), name
    for name in ("hidden", "past"):
        assert all(torch.equal(now, then[rows]) for now, then in zip(after[name], before[name], strict=True)), name
    assert state.row["hidden"].data_ptr() == hidden, "written in place"
    assert state.row["past"] is past


def test_put_fills_the_place_of_sentences_with_all_their_rows():
    heads = Heads(8, heads=2)
    state, other = filled(heads, 3, rows=2), filled(heads, 2, rows=2)
    before, given = copy_of(state), copy_of(other)
    state.put_(torch.tensor([2, 0]), other)
    after = copy_of(state)
    for name, places in (("lengths", [2, 0]), ("memory", [2, 0]), ("hidden", [4, 5, 0, 1]), ("past", [4, 5, 0, 1])):
        stay = [1] if len(places) == 2 else [2, 3]
        for now, then, new in zip(after[name], before[name], given[name], strict=True):
            assert torch.equal(now[places], new), name
            assert torch.equal(now[stay], then[stay]), name


def test_put_takes_a_shorter_memory_and_refuses_a_longer_one():
    heads = Heads(8, heads=2)
    state, before = filled(heads, 2, keys=4), None
    before = copy_of(state)["memory"]
    state.put_(torch.tensor([1]), filled(heads, 1, keys=3))
    for now, then in zip(copy_of(state)["memory"], before, strict=True):
        assert torch.equal(now[0], then[0])
        assert not torch.equal(now[1, :, :3], then[1, :, :3])
    with pytest.raises(ShapeError, match="memory: .* given, expected rows of"):
        state.put_(torch.tensor([0]), filled(heads, 1, keys=5))
    with pytest.raises(ArgumentError, match="a state of 2 rows per sentence given, expected 1"):
        state.put_(torch.tensor([0]), filled(heads, 1, rows=2))


def test_what_else_is_shorter_is_followed_by_zeros():
    state, other = (State({}, {"coverage": torch.rand(2, size)}) for size in (5, 3))
    state.put_(torch.tensor([0, 1]), other)
    assert torch.equal(state.coverage, torch.cat([other.coverage, torch.zeros(2, 2)], 1))


def test_take_gives_sentences_with_all_their_rows():
    state = filled(Heads(8, heads=2), 3, rows=2)
    before, some = copy_of(state), state.take(torch.tensor([2, 1]))
    assert some.rows == 2
    for name, rows in (("lengths", [2, 1]), ("memory", [2, 1]), ("hidden", [4, 5, 2, 3]), ("past", [4, 5, 2, 3])):
        assert all(torch.equal(now, then[rows]) for now, then in zip(copy_of(some)[name], before[name], strict=True))
    some.row["hidden"].zero_()
    assert torch.equal(state.row["hidden"], before["hidden"][0]), "tensors of their own"


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_spread_repeats_the_only_hypothesis(rows):
    heads = Heads(8, heads=2)
    state = filled(heads, 3)
    wide, x = state.repeat_rows(rows), torch.randn(3, 1, 8)
    assert wide.rows == rows
    assert wide.sentence is state.sentence, "what is kept of a sentence is shared"
    assert torch.equal(wide.row["hidden"], state.row["hidden"].repeat_interleave(rows, 0))
    steps = heads.step(x.repeat_interleave(rows, 0), wide.row["past"], start=2)
    expected = heads.step(x, state.row["past"], start=2).repeat_interleave(rows, 0)
    torch.testing.assert_close(steps, expected)
    with pytest.raises(ArgumentError, match="repeat_rows: a state of 2 rows per sentence, expected one"):
        filled(heads, 2, rows=2).repeat_rows(3)


def test_rows_share_their_past_unless_somebody_watches():
    heads = Heads(8, heads=2)
    assert isinstance(repeat_cache_rows(filled(heads, 2).row["past"], 3), SharedBeamCache)
    heads.register_forward_pre_hook(lambda *_: None)
    alone = repeat_cache_rows(filled(heads, 2).row["past"], 3)
    assert not isinstance(alone, SharedBeamCache)
    assert alone.length.tolist() == [2] * 6


def test_the_queries_of_a_sentence_stand_side_by_side():
    x = torch.randn(6, 2, 4)
    assert torch.equal(State({}, {}, 3).group_rows(x), torch.stack([x[:3].flatten(0, 1), x[3:].flatten(0, 1)]))


def test_a_prepared_part_keeps_its_length():
    heads = Heads(8, heads=2)
    part = heads.prepare(torch.randn(3, 4, 8))
    part.length = torch.tensor([4, 2, 3])
    taken = State({"memory": part}, {}).take(torch.tensor([2, 0])).sentence["memory"]
    assert type(taken) is Prepared
    assert taken.length.tolist() == [3, 4]
    assert torch.equal(taken.keys, part.keys[[2, 0]])
