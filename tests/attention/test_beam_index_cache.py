"""BeamIndexCache: a beam's cache whose keys stay where they are equals one whose rows are copied."""

import pytest
import torch
from attention.cases import normal, scrambled
from oracles import agree

from regard.attention import Heads
from regard.attention.beam_index_cache import BeamIndexCache
from regard.attention.cache import Cache
from regard.attention.positions import Rotary
from regard.attention.span import Causal, Mask
from regard.errors import ArgumentError, ShapeError

HEADS = {"plain": lambda: Heads(8, heads=2), "rotary": lambda: Heads(8, heads=2, rotary=Rotary(4))}


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def caches(heads, rows=4, size=6):
    """One of each kind; on a GPU `heads.cache` gives the second."""
    plain = heads.cache(rows, size)
    shared = heads.cache(rows, size)
    keys, values = (torch.full(buffer.shape, 1e4, dtype=buffer.dtype) for buffer in (shared.keys, shared.values))
    return plain, BeamIndexCache.from_cache(Cache(keys, values, heads, shared.length))


@pytest.mark.parametrize("name", HEADS)
def test_a_reordered_beam_is_the_same(name):
    heads = scrambled(HEADS[name]())
    plain, lines = caches(heads)
    for _ in range(6):
        x = normal(4, 1, 8)
        start = plain.length.clone()
        agree(heads.follow(x, lines, start=start), heads.follow(x, plain, start=start))
        rows = torch.randint(0, 4, (4,))
        before = lines.keys.clone()
        plain.select_(rows)
        lines.select_(rows)
        assert torch.equal(lines.keys, before)  # nothing was copied
        assert lines.length.tolist() == plain.length.tolist()


def test_taken_and_put_rows_have_their_own_past():
    """Two sentences of two rows; a row's past may lie in the other row of its sentence."""
    heads = scrambled(HEADS["plain"]())
    plain, lines = caches(heads)
    for _ in range(3):
        x = normal(4, 1, 8)
        for cache in (plain, lines):
            heads.follow(x, cache)
            cache.select_(torch.tensor([1, 1, 3, 2]))
    chosen = torch.tensor([3, 1])
    few, some = plain.take(chosen), lines.take(chosen)
    x = normal(2, 1, 8)
    agree(heads.follow(x, some), heads.follow(x, few))
    small = heads.cache(2, 2)  # room for fewer positions
    heads.follow(normal(2, 1, 8), small)
    for index in (torch.tensor([2, 3]), slice(0, 2)):
        plain.put_(index, small)
        lines.put_(index, small)
        x = normal(4, 1, 8)
        agree(heads.follow(x, lines), heads.follow(x, plain))
    plain.put_(torch.tensor([0, 1]), few)
    lines.put_(torch.tensor([0, 1]), some)
    x = normal(4, 1, 8)
    agree(heads.follow(x, lines), heads.follow(x, plain))


def test_everybody_sees_the_line():
    """A forward, a look and a mask of the whole size, after a reordering."""
    heads = scrambled(HEADS["plain"]())
    plain, lines = caches(heads, rows=3)
    for _ in range(2):
        x = normal(3, 1, 8)
        heads.follow(x, plain)
        heads.follow(x, lines)
        plain.select_(torch.tensor([1, 2, 2]))
        lines.select_(torch.tensor([1, 2, 2]))
    x = normal(3, 1, 8)
    for span in (None, Causal(2), Mask(torch.tensor([True, False, True, True, True, True]))):
        agree(heads(x, lines, span=span), heads(x, plain, span=span))
        agree(heads.look(x, lines, span=span).weights, heads.look(x, plain, span=span).weights)


@pytest.mark.unchecked
def test_what_does_not_fit_is_named():
    heads, other = Heads(8, heads=2), Heads(8, heads=2)
    _, lines = caches(heads)
    with pytest.raises(ShapeError, match="rows: 3 given, expected one for each of the cache's 4"):
        lines.select_(torch.tensor([0, 1, 2]))
    with pytest.raises(ArgumentError, match="another module"):
        lines.put_(torch.tensor([0]), other.cache(1, 2))
    with pytest.raises(ShapeError, match="expected rows of"):
        lines.put_(torch.tensor([0]), heads.cache(1, 9))
