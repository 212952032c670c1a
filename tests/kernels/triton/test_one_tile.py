"""Attention of short sequences: the kernel equals a loop over sequences in float64, forward and every gradient."""

import math
from itertools import pairwise

import pytest
import torch

pytest.importorskip("triton")
from regard.attention import Attention, Causal, Dot, Lengths
from regard.kernels.triton import one_tile

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # on a CPU the kernel is interpreted
# The interpreter has no bfloat16 product, and the kernel accepts float32 only there.
DTYPES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.float32, torch.float16]
DTYPE = DTYPES[0]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Fill unwritten memory with NaN."""

    def spoilt(fresh):
        def make(*args, **options):
            made = fresh(*args, **options)
            return made.fill_(math.nan) if made.is_floating_point() else made

        return make

    monkeypatch.setattr(torch, "empty_like", spoilt(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", spoilt(torch.Tensor.new_empty))


def one(query, keys, values, scale, causal, keep=None):
    """Compute attention of one sequence, [n a d], by its definition."""
    scores = torch.einsum("nad,mad->anm", query, keys) * scale
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool().to(scores.device), -math.inf)
    weights = scores.softmax(-1) if keys.shape[0] else scores
    weights = weights if keep is None else weights * keep
    return torch.einsum("anm,mad->nad", weights, values)


def loop(query, keys, values, offsets, key_offsets, scale, causal):
    """Compute attention of each sequence alone, in float64."""
    pairs = zip(pairwise(offsets), pairwise(key_offsets), strict=True)
    return torch.cat([one(query[a:b], keys[c:d], values[c:d], scale, causal) for (a, b), (c, d) in pairs])


def bounds(*lengths):
    return [0, *torch.tensor(lengths).cumsum(0).tolist()]


def close(found, expected, dtype):
    for one, other in zip(found, expected, strict=True):
        assert torch.isfinite(one).all(), "something was not written"
        difference = float((one.detach().double() - other.detach().double()).abs().max())
        assert difference <= TOLERANCE[dtype] * max(1.0, float(other.detach().abs().max())), difference


def agree(run, oracle, inputs, dtype):
    """Compare results and gradients with the oracle's in float64 from the same rounded numbers."""
    given = [x.to(DEVICE, dtype).requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in given]
    found, expected = run(*given), oracle(*exact)
    grad = torch.randn(found.shape, dtype=torch.float64, device=DEVICE).to(dtype)
    close(
        [found, *torch.autograd.grad(found, given, grad)],
        [expected, *torch.autograd.grad(expected, exact, grad.double())],
        dtype,
    )


LENGTHS = {
    "one token": ([1], [1]),
    "several tiles": ([1, 7, 63, 33], [1, 7, 63, 33]),
    "empty ones": ([0, 5, 0, 3, 0], [0, 5, 0, 3, 0]),
    "across": ([5, 1, 20, 0, 3], [2, 40, 0, 7, 1]),
    "long among short": ([3, 70, 20], [3, 70, 20]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_packed_sequences_equal_a_loop_over_them(lengths, causal, dtype):
    queries, keys = LENGTHS[lengths]
    offsets, key_offsets = bounds(*queries), bounds(*keys)
    heads, width = 2, 20
    inputs = [torch.randn(total[-1], heads, width) for total in (offsets, key_offsets, key_offsets)]
    where = [torch.tensor(x, device=DEVICE) for x in (offsets, key_offsets)]
    agree(
        lambda q, k, v: one_tile.attention(q, k, v, *where, max(queries), max(keys), scale=0.3, causal=causal),
        lambda q, k, v: loop(q, k, v, offsets, key_offsets, 0.3, causal),
        inputs,
        dtype,
    )


def test_the_longest_tile_and_the_widest():
    offsets = torch.tensor([0, 128, 129], dtype=torch.int32, device=DEVICE)
    inputs = [torch.randn(129, 1, 128) for _ in range(3)]
    agree(
        lambda q, k, v: one_tile.attention(q, k, v, offsets, offsets, 128, 128, scale=0.1, causal=True),
        lambda q, k, v: loop(q, k, v, offsets.tolist(), offsets.tolist(), 0.1, True),
        inputs,
        DTYPE,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_joined_projections_equal_parts(causal):
    heads, width, lengths = 3, 16, [4, 0, 17, 1]
    offsets = bounds(*lengths)
    where = torch.tensor(offsets, device=DEVICE)

    def oracle(qkv):
        parts = qkv.unflatten(1, (3, heads, width)).unbind(1)
        return loop(*parts, offsets, offsets, 0.25, causal).flatten(1)

    agree(
        lambda qkv: one_tile.self_attention(qkv, where, 17, heads, scale=0.25, causal=causal),
        oracle,
        [torch.randn(offsets[-1], 3 * heads * width)],
        DTYPE,
    )


@pytest.mark.parametrize("radius", [0, 3, 40])
def test_a_window_hides_what_is_further_away(radius):
    heads, width, offsets = 2, 16, bounds(4, 0, 33, 1)

    def oracle(qkv):
        query, keys, values = qkv.unflatten(1, (3, heads, width)).unbind(1)
        rows = []
        for a, b in pairwise(offsets):
            for i in range(a, b):
                near = slice(max(a, i - radius), min(b, i + radius + 1))
                rows.append(one(query[i : i + 1], keys[near], values[near], 0.25, False))
        return torch.cat(rows).flatten(1)

    where = torch.tensor(offsets, device=DEVICE)
    agree(
        lambda qkv: one_tile.self_attention(qkv, where, 33, heads, scale=0.25, radius=radius),
        oracle,
        [torch.randn(offsets[-1], 3 * heads * width)],
        DTYPE,
    )


def test_a_memory_of_its_own_lengths():
    heads, width = 2, 16
    offsets, key_offsets = bounds(4, 9, 1), bounds(7, 2, 33)

    def oracle(query, kv):
        keys, values = kv.unflatten(1, (2, heads, width)).unbind(1)
        return loop(query.unflatten(1, (heads, width)), keys, values, offsets, key_offsets, 0.25, False).flatten(1)

    where = [torch.tensor(x, device=DEVICE) for x in (offsets, key_offsets)]
    agree(
        lambda query, kv: one_tile.cross_attention(query, kv, *where, 9, 33, heads, scale=0.25),
        oracle,
        [torch.randn(offsets[-1], heads * width), torch.randn(key_offsets[-1], 2 * heads * width)],
        DTYPE,
    )


def as_call(span, *inputs, dropout=0.0):
    """Return the call that the table of backends would receive."""
    made = Attention(Dot(scaled=True), dropout=dropout)
    query, prepared = made.check_inputs(*inputs)
    return made.resolve_call(made.score.project_query(query), prepared, query, span, False)


SPANS = {
    "none": lambda: None,
    "causal": lambda: Causal(),
    "lengths": lambda: Lengths(torch.tensor([[7, 0], [3, 1], [5, 7]], device=DEVICE)),
    "lengths of rows": lambda: Lengths(torch.tensor([[7], [0], [3]], device=DEVICE)),
    "one length": lambda: Lengths(torch.tensor(5, device=DEVICE)),
    "causal lengths": lambda: Lengths(torch.tensor([[7], [0], [3]], device=DEVICE)) & Causal(),
}


@pytest.mark.parametrize("queries", [1, 7, 33])
@pytest.mark.parametrize("span", SPANS)
def test_padded_sequences_equal_the_reference(span, queries):
    span, attention = SPANS[span](), Attention(Dot(scaled=True))
    inputs = [torch.randn(3, 2, n, 16) for n in (queries, 7, 7)]
    agree(
        lambda q, k, v: one_tile.attend(as_call(span, q, k, v)),
        lambda q, k, v: attention(q, k, v, span=span),
        inputs,
        DTYPE,
    )


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 3)])
def test_any_leading_dimensions_that_broadcast(shape):
    attention = Attention(Dot(scaled=True))
    inputs = [torch.randn(*shape, 5, 8), torch.randn(*shape[1:], 9, 8), torch.randn(9, 8)]
    span = Lengths(torch.tensor(4, device=DEVICE))
    agree(
        lambda q, k, v: one_tile.attend(as_call(span, q, k, v)),
        lambda q, k, v: attention(q, k, v, span=span),
        inputs,
        DTYPE,
    )


def test_strides_are_taken_as_they_are():
    """Heads before tokens, tokens apart, an expanded gradient: all give the same."""
    offsets = torch.tensor([0, 3, 10], device=DEVICE)
    wide = torch.randn(2, 20, 40, device=DEVICE, dtype=DTYPE, requires_grad=True)
    query, keys, values = (wide[:, ::2, first : first + 12].transpose(0, 1) for first in (0, 13, 28))
    found = one_tile.attention(query, keys, values, offsets, offsets, 7, 7, scale=1.0)
    exact = wide.detach().double().requires_grad_()
    parts = (exact[:, ::2, first : first + 12].transpose(0, 1) for first in (0, 13, 28))
    expected = loop(*parts, [0, 3, 10], [0, 3, 10], 1.0, False)
    found.sum().backward()
    expected.sum().backward()
    close([found, wide.grad], [expected, exact.grad], DTYPE)


def test_twice_is_the_same_and_neighbours_change_nothing():
    lengths = [5, 31, 2, 12]
    offsets = torch.tensor(bounds(*lengths), device=DEVICE)
    qkv = torch.randn(50, 3 * 32, device=DEVICE, dtype=DTYPE, requires_grad=True)

    def run(x, where, longest):
        y = one_tile.self_attention(x, where, longest, 2, scale=0.2, causal=True)
        return [y, *torch.autograd.grad(y, x, torch.ones_like(y))]

    first, second = run(qkv, offsets, 31), run(qkv, offsets, 31)
    alone = run(qkv[5:36], torch.tensor([0, 31], device=DEVICE), 31)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert all(torch.equal(one[5:36], other) for one, other in zip(first, alone, strict=True))


def dropped(p, seed, lengths, heads=2):
    """Return the weights that the kernel keeps, [a n m] per sequence, from equal scores and a basis as values."""
    offsets = torch.tensor(bounds(*lengths), device=DEVICE)
    total = int(offsets[-1])
    values = torch.cat([torch.eye(n, 64) for n in lengths]).unsqueeze(1).expand(-1, heads, -1).to(DEVICE)
    zero = torch.zeros(total, heads, 64, device=DEVICE, dtype=DTYPE)
    seed = torch.tensor([seed], device=DEVICE)
    found = one_tile.attention(zero, zero, values.to(DTYPE), offsets, offsets, 64, 64, scale=1.0, dropout=p, seed=seed)
    return [x.float().transpose(0, 1)[..., :n] * n for x, n in zip(found.split(lengths), lengths, strict=True)]


def test_dropout_keeps_the_share_it_says_and_scales_the_rest():
    p, lengths = 0.3, [40, 64, 7]
    masks = dropped(p, 1, lengths)
    drawn = torch.cat([mask.flatten() for mask in masks])
    kept = drawn != 0
    torch.testing.assert_close(drawn[kept], torch.full_like(drawn[kept], 1 / (1 - p)), rtol=1e-2, atol=0)
    assert abs(float(kept.double().mean()) - (1 - p)) < 5 * math.sqrt(p * (1 - p) / drawn.numel())
    assert all(torch.equal(a, b) for a, b in zip(masks, dropped(p, 1, lengths), strict=True))
    other = torch.cat([mask.flatten() for mask in dropped(p, 2, lengths)]) != 0
    for one, two in (
        (kept, other),
        (masks[1][0] != 0, masks[1][1] != 0),
        (masks[1][0, :-1] != 0, masks[1][0, 1:] != 0),
    ):
        agreement, share = (one == two).double().mean(), p * p + (1 - p) ** 2  # independent draws
        assert abs(float(agreement) - share) < 5 * math.sqrt(share * (1 - share) / one.numel())


def test_the_backward_pass_draws_the_same_mask():
    p, lengths, seed = 0.4, [5, 17, 1], 7
    masks = dropped(p, seed, lengths)
    offsets = torch.tensor(bounds(*lengths), device=DEVICE)

    def oracle(q, k, v):
        cut = (x.split(lengths) for x in (q, k, v))
        return torch.cat([one(*x, 0.3, False, (keep != 0) / (1 - p)) for *x, keep in zip(*cut, masks, strict=True)])

    agree(
        lambda q, k, v: one_tile.attention(
            q, k, v, offsets, offsets, 17, 17, scale=0.3, dropout=p, seed=torch.tensor([seed], device=DEVICE)
        ),
        oracle,
        [torch.randn(23, 2, 24) for _ in range(3)],
        DTYPE,
    )


def test_dropout_without_a_seed_follows_torchs_generator():
    call = as_call(None, *[torch.randn(2, 1, 9, 16, device=DEVICE, dtype=DTYPE)] * 3, dropout=0.5)
    results = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        results.append(one_tile.attend(call))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_nothing_to_do():
    x, offsets = (
        torch.zeros(0, 2, 8, device=DEVICE, requires_grad=True),
        torch.zeros(3, dtype=torch.int64, device=DEVICE),
    )
    y = one_tile.attention(x, x, x, offsets, offsets, 0, 0, scale=1.0)
    y.sum().backward()
    assert y.shape == x.grad.shape == (0, 2, 8)


# ---- decisions of the host


@pytest.mark.parametrize(
    "table", [one_tile.FORWARD, one_tile.BACKWARD, one_tile.FORWARD_PACKED, one_tile.BACKWARD_PACKED]
)
def test_every_length_has_one_launch_that_serves_it(table):
    for longest in range(1, max(one_tile.FORWARD) + 1):
        launches = one_tile.plan_launches(table, longest)
        assert launches[0][1] == -1  # an empty call is served too
        for length in range(longest + 1):
            serving = [tile for tile, low in launches if low < length <= tile.size]
            assert len(serving) == 1, (longest, length)
        assert longest <= launches[-1][0].size < max(2 * longest, 33)
        assert all(tile.block <= tile.size and tile.small < tile.size for tile, _ in launches)


def test_queries_and_warps_of_a_tile():
    tile = one_tile.Tile(64, 64, 2)
    assert [one_tile.queries_at_once(tile, n) for n in (1, 16, 17, 40, 64, 100)] == [16, 16, 32, 64, 64, 64]
    assert one_tile.queries_at_once(tile, None) == 64
    assert [one_tile.warps_of(tile, width) for width in (16, 64, 65, 128)] == [2, 2, 4, 4]
    assert one_tile.warps_of(tile._replace(warps=4), 128) == 4
