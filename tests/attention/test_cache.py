"""Caches: fixed buffers filled row by row; cached results equal uncached ones, whatever step each row is at."""

import pytest
import torch
from attention.cases import SCORES, attention_of, draw_inputs, each_backend, normal, scrambled
from oracles import agree

from regard.attention import Attention, Decoder, Heads, watch
from regard.attention.cache import BeamIndexCache, Cache, buffers
from regard.attention.positions import Rotary
from regard.attention.score import Additive, General
from regard.attention.span import Causal, Mask, Predictive
from regard.attention.weighting import Sparsemax
from regard.errors import ArgumentError, ShapeError

HEADS = {
    "plain": lambda: Heads(8, heads=2),
    "rotary": lambda: Heads(8, heads=2, rotary=Rotary(4)),
    "sizes": lambda: Heads(8, heads=2, query_size=6, value_size=10),
    "input": lambda: Heads(8, heads=2, split="input"),
    "additive": lambda: Heads(8, heads=2, score=lambda d: Additive(d, d, hidden=5)),
    "sparsemax": lambda: Heads(8, heads=2, weighting=Sparsemax()),
}


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def step(heads, x, cache):
    """Run one query per row: the cache takes its key and value, then the query looks at all of them."""
    start = cache.length.clone()
    cache.extend(heads.prepare(x, start=start))
    return heads(x, cache, start=start)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("size", [7, 16])
def test_cached_equals_refed_one_query_at_a_time(name, size):
    heads, x = scrambled(HEADS[name]()), normal(3, 7, 8)
    cache = heads.cache(3, size)
    for buffer in [b for b in vars(cache).values() if isinstance(b, torch.Tensor) and b.is_floating_point()]:
        buffer.fill_(1e4)  # entries past the length are never read
    steps = [step(heads, x[:, i : i + 1], cache) for i in range(7)]
    assert cache.length.tolist() == [7, 7, 7]
    agree(torch.cat(steps, dim=1), heads(x, span=Causal()))


@pytest.mark.parametrize("name", HEADS)
def test_rows_may_be_at_different_steps(name):
    """A row that starts late, in a slot freed by another row, gives the same result as alone."""
    heads, x, late = scrambled(HEADS[name]()), normal(2, 6, 8), normal(1, 3, 8)
    cache, fresh = heads.cache(2, 9), heads.cache(1, 9)
    for i in range(3):
        step(heads, x[:, i : i + 1], cache)
    cache.put_(torch.tensor([1]), fresh)
    assert cache.length.tolist() == [3, 0]
    steps = [step(heads, torch.stack([x[0, 3 + i : 4 + i], late[0, i : i + 1]]), cache) for i in range(3)]
    assert cache.length.tolist() == [6, 3]
    both = torch.cat(steps, dim=1)
    agree(both[0], heads(x[0], span=Causal())[3:])
    agree(both[1], heads(late[0], span=Causal()))


@pytest.mark.parametrize("name", HEADS)
def test_several_keys_at_once_then_one_at_a_time(name):
    heads, x = scrambled(HEADS[name]()), normal(2, 6, 8)
    cache = heads.cache(2, 8)
    cache.extend(heads.prepare(x[:, :4]))
    first = heads(x[:, :4], cache, span=Causal())
    rest = [step(heads, x[:, i : i + 1], cache) for i in (4, 5)]
    agree(torch.cat([first, *rest], dim=1), heads(x, span=Causal()))


def test_every_backend_reads_a_cache_alike():
    heads, x = scrambled(HEADS["plain"]()), normal(2, 6, 8)
    cache = heads.cache(2, 9)
    cache.extend(heads.prepare(x[:, :5]))
    for _, actual in each_backend(heads, x[:, 5:], cache):
        agree(actual, heads(x[:, 5:], x[:, :5]))
    agree(heads.look(x[:, 5:], cache).context, heads(x[:, 5:], x[:, :5]))


@pytest.mark.parametrize("name", ["scaled", "general", "additive", "cosine", "cosine-query"])
def test_attention_caches_too(name):
    score = SCORES[name](6)
    query, keys, values = draw_inputs(score, (2,), 1, 6)
    attention = attention_of(score)
    cache = attention.cache(2, 9, keys=score.key_size, values=4, dtype=torch.float64, device="cpu")
    for i in range(6):
        cache.extend(attention.prepare(keys[:, i : i + 1], values[:, i : i + 1]))
        agree(attention(query, cache), attention(query, keys[:, : i + 1], values[:, : i + 1]))


def test_an_empty_cache_gives_zeros():
    attention = attention_of(SCORES["scaled"](6))
    context = attention(normal(2, 1, 5), attention.cache(2, 9, keys=5, values=4, dtype=torch.float64))
    assert context.shape == (2, 1, 4)
    assert not context.any()


def filled(heads, lengths, size=9):
    """Return a cache whose rows have different lengths, and the input of each row."""
    fed, cache = [normal(length, 8) for length in lengths], heads.cache(len(lengths), size)
    for row, x in enumerate(fed):
        one = heads.cache(1, size)
        one.extend(heads.prepare(x[None]))
        cache.put_(torch.tensor([row]), one)
    return cache, fed


def reads(heads, cache, fed):
    query = normal(len(fed), 1, 8)
    for row, x in enumerate(fed):
        agree(heads(query, cache)[row], heads(query[row], x))


def test_put_fills_rows():
    heads = scrambled(HEADS["plain"]())
    cache, fed = filled(heads, [3, 1, 5])
    reads(heads, cache, fed)
    other, more = filled(heads, [2, 4])
    cache.put_(torch.tensor([2, 0]), other)
    reads(heads, cache, [more[1], fed[1], more[0]])


def test_select_reorders_in_place():
    heads = scrambled(HEADS["plain"]())
    cache, fed = filled(heads, [3, 1, 5])
    pointers = [b.data_ptr() for b in buffers(cache)]
    cache.select_(torch.tensor([1, 1, 2]))
    cache.select_(torch.tensor([2, 0, 0]))
    fed = [fed[2], fed[1], fed[1]]
    assert [b.data_ptr() for b in buffers(cache)] == pointers
    assert cache.length.tolist() == [5, 1, 1]
    for row in range(3):  # new keys then go to the right position
        fed[row] = torch.cat([fed[row], normal(1, 8)])
    cache.extend(heads.prepare(torch.stack([x[-1:] for x in fed])))
    reads(heads, cache, fed)
    cache.select_(torch.tensor([2, 0, 0]))
    reads(heads, cache, [fed[2], fed[0], fed[0]])


def test_take_gives_some_rows_and_leaves_the_rest_alone():
    heads = scrambled(HEADS["plain"]())
    cache, fed = filled(heads, [3, 1, 5])
    part = cache.take(torch.tensor([2, 1]))
    part.extend(heads.prepare(normal(2, 1, 8)))
    assert part.length.tolist() == [6, 2]
    assert cache.length.tolist() == [3, 1, 5]
    reads(heads, cache, fed)


def test_extending_copies_no_buffer():
    """Extending writes into fixed buffers by index; the length stays on the device, and no shape depends on data."""
    heads = scrambled(HEADS["plain"]())
    cache = heads.cache(2, 9)
    before = {name: (b.data_ptr(), b.shape) for name, b in vars(cache).items() if isinstance(b, torch.Tensor)}
    assert len(before) >= 3
    for _ in range(4):
        step(heads, normal(2, 1, 8), cache)
    after = {name: (b.data_ptr(), b.shape) for name, b in vars(cache).items() if isinstance(b, torch.Tensor)}
    assert after == before


def test_a_cached_look_has_no_weight_past_the_length():
    heads = scrambled(Heads(8, heads=2, score=lambda d: General(d, d)))
    cache, _ = filled(heads, [3, 1, 5])
    weights = heads.look(normal(3, 1, 8), cache).weights
    for row, length in enumerate([3, 1, 5]):
        assert not weights[row, ..., length:].any()
        agree(weights[row].sum(-1), torch.ones(2, 1, dtype=torch.float64))


def test_a_prediction_over_a_cache_knows_how_full_it_is():
    """S is the row's length, not the size of the buffer."""
    attention = scrambled(Attention(General(5, 5), span=Predictive(5, 2)))
    query, keys = normal(2, 1, 5), normal(2, 6, 5)
    cache = attention.cache(2, 20, keys=5, values=5)
    cache.extend(attention.prepare(keys))
    agree(attention(query, cache), attention(query, keys))
    agree(attention.look(query, cache).centre, attention.look(query, keys).centre)


def test_caches_take_only_what_fits():
    one, other = Heads(8, heads=2), Heads(8, heads=2)
    with pytest.raises(ArgumentError, match="another module"):
        one.cache(2, 3).put_(torch.tensor([0]), other.cache(1, 3))
    for wrong in (torch.randn(2, 8), torch.randn(3, 1, 8)):
        with pytest.raises(ShapeError, match="the cache's rows"):
            one.cache(2, 5).extend(one.prepare(wrong))
    decoder = Decoder(8, heads=2, layers=1)
    with pytest.raises(ShapeError, match="the state's 2 rows"):
        decoder.step(torch.randn(1, 1, 8), decoder.start(torch.randn(2, 3, 8), 5))


def test_a_cache_under_a_mask_of_its_whole_size():
    heads = Heads(8, heads=2)
    cache = heads.cache(2, 6)
    cache.extend(heads.prepare(torch.randn(2, 2, 8)))
    with watch(heads) as looks:
        called = heads(torch.randn(2, 1, 8), cache, span=Mask(torch.ones(1, 6, dtype=torch.bool)))
    torch.testing.assert_close(looks[""].context, called)


# ---- `BeamIndexCache`: a beam's cache that leaves keys in place equals one that copies rows


BEAM_HEADS = {"plain": lambda: Heads(8, heads=2), "rotary": lambda: Heads(8, heads=2, rotary=Rotary(4))}


def caches(heads, rows=4, size=6):
    """Return a cache of each kind; on a GPU `heads.cache` returns the second."""
    plain = heads.cache(rows, size)
    shared = heads.cache(rows, size)
    keys, values = (torch.full(buffer.shape, 1e4, dtype=buffer.dtype) for buffer in (shared.keys, shared.values))
    return plain, BeamIndexCache.from_cache(Cache(keys, values, heads, shared.length))


@pytest.mark.parametrize("name", BEAM_HEADS)
def test_a_reordered_beam_is_the_same(name):
    heads = scrambled(BEAM_HEADS[name]())
    plain, lines = caches(heads)
    for _ in range(6):
        x = normal(4, 1, 8)
        start = plain.length.clone()
        agree(heads.step(x, lines, start=start), heads.step(x, plain, start=start))
        rows = torch.randint(0, 4, (4,))
        before = lines.keys.clone()
        plain.select_(rows)
        lines.select_(rows)
        assert torch.equal(lines.keys, before)  # nothing was copied
        assert lines.length.tolist() == plain.length.tolist()


def test_taken_and_put_rows_have_their_own_past():
    """Two sentences of two rows each; a row's past may be stored in the other row of its sentence."""
    heads = scrambled(BEAM_HEADS["plain"]())
    plain, lines = caches(heads)
    for _ in range(3):
        x = normal(4, 1, 8)
        for cache in (plain, lines):
            heads.step(x, cache)
            cache.select_(torch.tensor([1, 1, 3, 2]))
    chosen = torch.tensor([3, 1])
    few, some = plain.take(chosen), lines.take(chosen)
    x = normal(2, 1, 8)
    agree(heads.step(x, some), heads.step(x, few))
    small = heads.cache(2, 2)  # room for fewer positions
    heads.step(normal(2, 1, 8), small)
    for index in (torch.tensor([2, 3]), slice(0, 2)):
        plain.put_(index, small)
        lines.put_(index, small)
        x = normal(4, 1, 8)
        agree(heads.step(x, lines), heads.step(x, plain))
    plain.put_(torch.tensor([0, 1]), few)
    lines.put_(torch.tensor([0, 1]), some)
    x = normal(4, 1, 8)
    agree(heads.step(x, lines), heads.step(x, plain))


def test_everybody_sees_the_line():
    """Check a forward, a look and a mask of the full size after a reordering."""
    heads = scrambled(BEAM_HEADS["plain"]())
    plain, lines = caches(heads, rows=3)
    for _ in range(2):
        x = normal(3, 1, 8)
        heads.step(x, plain)
        heads.step(x, lines)
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
