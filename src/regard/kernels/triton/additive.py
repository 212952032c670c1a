"""Additive attention in Triton: scores, softmax and the sum of values without [*b n m h] in memory, both directions.

The scores are the expensive part (n · m · h of tanh against n · m · dv multiply-adds on tensor cores), so they have
their own kernel. They are held in memory in float32: all [*b n m] for the backward pass, or a few rows at a time
without one. The kernels of the forward pass are in `additive_forward.py`, those of the backward pass here: the gradient
of the scores once, then one sweep for queries and one for keys. A program for a slice of the queries' gradient cannot
recompute the scores, so their gradient is held in memory too, as [n m] and as [m n]: both sweeps read it along their
own rows.
"""

# b batch · r rows: all leading dimensions as one · a heads · n queries · m keys · h hidden · dv value width
# g gradient of the scores
import math
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.reference import Call
from regard.kernels.span_limits import merge_batch
from regard.kernels.triton import additive_forward as forward
from regard.kernels.triton import operation
from regard.kernels.triton.additive_forward import (
    NONE,
    SAFE,
    halves,
    key_range,
    pad_size,
    query_range,
    structured_limits,
)
from regard.kernels.triton.arithmetic import power, product, reciprocal, tanh

SWEEP = {"OR": 4, "OT": 4, "DR": 4, "DT": 16, "num_warps": 4, "num_stages": 1}
GRADIENT = {"BV": 64, "num_warps": 4, "num_stages": 2}


def attend(call: Call) -> Tensor:
    """Compute the reference's sum for an additive score and softmax, under lengths, causality, one window and masks."""
    assert call.vector is not None
    batch = call.batch
    vector = call.vector if call.vector.ndim == 2 else call.vector[None]
    inputs = (call.query, call.keys, call.values, call.vector)
    save = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    tensors = (merge_batch(x, batch) for x in inputs[:3])
    context = serve(*tensors, vector, *limit_arguments(call, batch), call.temperature, save)[0]
    return context.reshape(*batch, *context.shape[-2:])


def limit_arguments(
    call: Call, batch: tuple[int, ...]
) -> tuple[Tensor | None, Tensor | None, int, Tensor | None, int, int, Tensor | None]:
    """Return lengths; causality's start, per row or for all; the window's start, likewise, and its radius; the mask.

    Without causality the start is `NONE`, without a window the radius is -1. The mask is [b' b'' n m] with stride 0
    along broadcast dimensions, and r = b' · b''.
    """
    limits, window = call.limits, call.limits.window

    def each(value: Tensor) -> Tensor:  # contiguous, as kernels need it: a reshape may keep stride 0
        return merge_batch(value, batch, 0).contiguous()

    lengths = None if limits.lengths is None else each(limits.lengths)
    causal = each(limits.causal) if isinstance(limits.causal, Tensor) else None
    start = limits.causal if isinstance(limits.causal, int) else NONE
    centre, middle, radius = None, 0, -1
    if window is not None:
        centre = each(window.start) if isinstance(window.start, Tensor) else None
        middle = window.start if isinstance(window.start, int) else 0
        radius = window.radius
    mask = None
    for part in limits.masks:
        mask = part if mask is None else mask & part
    if mask is not None:
        mask = mask.expand(*batch, limits.queries, limits.keys)
        mask = mask[None, None] if not batch else mask[:, None] if len(batch) == 1 else mask.flatten(0, -4)
    return lengths, causal, start, centre, middle, radius, mask


def compute(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    vector: Tensor,
    lengths: Tensor | None,
    causal: Tensor | None,
    start: int,
    centre: Tensor | None,
    middle: int,
    radius: int,
    mask: Tensor | None,
    temperature: float,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return contexts [r n dv] of [r n h], [r m h], [r m dv] and [a h]; if saved, also scores and their log-sum-exp."""
    (rows, n, _), (m, dv) = query.shape, values.shape[-2:]
    context = values.new_empty(rows, n, dv)
    n_pad, m_pad, none = pad_size(n), pad_size(m), query.new_empty(0, dtype=torch.float32)
    if context.numel() == 0 or m == 0:
        return context.zero_(), none, none.clone()
    inner = 1 if mask is None else mask.shape[1]
    group = math.lcm(vector.shape[0], inner)  # a row's head and mask depend on its index modulo this
    step = rows if save else forward.rows_at_once(rows, 4 * n_pad * m_pad, group)
    scored, lse = (query.new_empty(size, dtype=torch.float32) for size in ((step, n_pad, m_pad), (step, n_pad)))
    for first in range(0, rows, step):
        part = slice(first, first + step)
        some = [None if x is None else x[part] for x in (lengths, causal, centre)]
        rows_mask = None if mask is None else mask[first // inner : (first + step) // inner]
        limits = (some[0], some[1], start, some[2], middle, radius, rows_mask)
        partial = forward.score(query[part], keys[part], vector, scored, limits, temperature)
        forward.weigh(scored, partial, values[part], context[part], lse, limits[:-1])
    if save:
        return context, scored, lse
    return context, none, none.clone()


def shapes(query, keys, values, *others):  # type: ignore[no-untyped-def]
    """Return empty tensors with the shapes of `compute`'s results."""
    rows, n, m = query.shape[0], query.shape[1], keys.shape[1]
    context = values.new_empty(rows, n, values.shape[-1])
    save = others[-1] and context.numel() and m
    sizes = ((rows, pad_size(n), pad_size(m)), (rows, pad_size(n))) if save else ((0,), (0,))
    return context, *(query.new_empty(size, dtype=torch.float32) for size in sizes)


def compute_backward(
    grad: Tensor,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    vector: Tensor,
    lengths: Tensor | None,
    causal: Tensor | None,
    start: int,
    centre: Tensor | None,
    middle: int,
    radius: int,
    temperature: float,
    context: Tensor,
    scored: Tensor,
    lse: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of query, keys, values and vector."""
    limits = (lengths, causal, start, centre, middle, radius)
    if scored.numel() == 0:
        return torch.zeros_like(query), torch.zeros_like(keys), torch.zeros_like(values), torch.zeros_like(vector)
    g, turned, d_values = weights_backward(grad, values, context, scored, lse, limits, temperature)
    d_query, d_keys, d_vector = scores_backward(g, turned, query, keys, vector, limits)
    return d_query, d_keys, d_values, d_vector


def weights_backward(grad, values, context, scored, lse, limits, temperature):  # type: ignore[no-untyped-def]
    """Compute the gradients of the scores, [r n m] and [r m n], and of the values."""
    (rows, n, dv), m = context.shape, values.shape[1]
    n_pad, m_pad = pad_size(n), pad_size(m)
    delta = lse.new_empty(lse.shape)
    wide = min(256, max(16, 1 << (dv - 1).bit_length()))
    inner_products[(n_pad // 16, rows)](grad, context, delta, n, dv, n_pad, *grad.stride(), BN=16, BV=wide, num_warps=4)
    g, turned = lse.new_empty(rows, n_pad, m_pad), lse.new_empty(rows, m_pad, n_pad)
    d_values = values.new_empty(values.shape)
    limited = structured_limits(*limits)
    score_gradients[(m_pad // forward.BLOCK, n_pad // forward.BLOCK, rows)](
        scored, lse, delta, values, grad, g, turned, n, m, dv, n_pad, m_pad,
        *values.stride(), *grad.stride(), temperature,
        **limited, BN=forward.BLOCK, BM=forward.BLOCK, **{**GRADIENT, "BV": min(GRADIENT["BV"], wide)},
    )  # fmt: skip
    wide = min(forward.SUM["BV"], wide)
    value_gradients[(m_pad // forward.BLOCK, -(-dv // wide), rows)](
        scored, lse, grad, d_values, n, m, dv, n_pad, m_pad, *grad.stride(),
        **limited, BN=forward.BLOCK, BM=forward.BLOCK, **{**forward.SUM, "BV": wide},
    )  # fmt: skip
    return g, turned, d_values


def scores_backward(g, turned, query, keys, vector, limits):  # type: ignore[no-untyped-def]
    """Compute the gradients of query, keys and vector from those of the scores."""
    rows, (heads, h) = query.shape[0], vector.shape
    h_pad = -(-h // 4) * 4
    sides = [(x, *forward.raise_exponentials(x, None, heads, False)) for x in (query, keys)]
    grads = []
    own, wide = SWEEP["OR"] * SWEEP["OT"], 2 * SWEEP["DR"] * SWEEP["DT"]
    for turn, gradient in enumerate((g, turned)):
        (x, e_x, most_x), (y, e_y, most_y) = sides if turn == 0 else reversed(sides)
        n, m, n_pad, m_pad = x.shape[1], y.shape[1], e_x.shape[1], e_y.shape[1]
        out = x.new_empty(x.shape)
        grid = (n_pad // own, -(-h_pad // wide), rows)
        part = g.new_empty((rows, grid[0], h_pad)) if turn else None
        again = torch.empty((rows, *grid[1::-1]), dtype=torch.int32, device=x.device)
        for rescue in (False, True):
            sweep[grid](
                e_x, e_y, most_x, most_y, gradient.view(torch.int64), out, part, again, x, y, vector,
                n, m, h, n_pad, m_pad, h_pad, heads, *x.stride(), *y.stride(), vector.stride(0),
                **structured_limits(*limits), KEYS=turn == 1, VECTOR=turn == 1, BLOCK=forward.BLOCK, **SWEEP,
                RESCUE=rescue,
            )  # fmt: skip
        grads.append(out)
    assert part is not None
    d_vector = part[..., :h].unflatten(0, (-1, heads)).sum((0, 2)).to(vector.dtype)
    return grads[0], grads[1], d_vector


def gradient_shapes(grad, query, keys, values, vector, *others):  # type: ignore[no-untyped-def]
    """Return empty tensors with the shapes of the gradients."""
    return tuple(x.new_empty(x.shape) for x in (query, keys, values, vector))


def keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    query, keys, values, vector, lengths, causal, start, centre, middle, radius, _, temperature, _ = inputs
    context, scored, lse = output
    ctx.save_for_backward(query, keys, values, vector, lengths, causal, centre, context, scored, lse)
    ctx.numbers = start, middle, radius, temperature
    ctx.set_materialize_grads(False)


def gradients(ctx, grad, backward):  # type: ignore[no-untyped-def]
    query, keys, values, vector, lengths, causal, centre, context, scored, lse = ctx.saved_tensors
    start, middle, radius, temperature = ctx.numbers
    if grad is None:
        return (None,) * 13
    limits = lengths, causal, start, centre, middle, radius
    grads = backward(grad, query, keys, values, vector, *limits, temperature, context, scored, lse)
    return *grads, *(None,) * 9


additive, serve = operation("additive_attention", compute, compute_backward, (shapes, gradient_shapes), keep, gradients)


# ---- kernels


@triton.jit(do_not_specialize=["n"])
@no_type_check
def inner_products(x, y, out, n, dv, n_pad, x_r, x_n, x_d, BN: tl.constexpr, BV: tl.constexpr):
    """Compute δ_i = Σ_c x_ic y_ic, the product of a context with its gradient; y is contiguous."""
    ib, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = ib * BN + tl.arange(0, BN)
    total = tl.zeros([BN], tl.float32)
    for first in range(0, dv, BV):
        c = first + tl.arange(0, BV)
        inside = (i < n)[:, None] & (c < dv)[None, :]
        one = tl.load(x + row * x_r + i[:, None].to(tl.int64) * x_n + c[None, :] * x_d, mask=inside, other=0.0)
        other = tl.load(y + (row * n + i[:, None]) * dv + c[None, :], mask=inside, other=0.0)
        total += tl.sum(one.to(tl.float32) * other.to(tl.float32), 1)
    tl.store(out + row * n_pad + i, total)


@triton.jit(do_not_specialize=["n", "m", "causal", "centre", "radius"])
@no_type_check
def score_gradients(
    scored, lse, delta, values, grad, g, turned,
    n, m, dv, n_pad, m_pad, v_r, v_m, v_d, o_r, o_n, o_d, temperature, lengths, causal, centre, radius,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Compute g = P ∘ (dO Vᵀ - δ) / temperature of one tile, as [n m] and as [m n]; zero where i may not see j."""
    jb, ib, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    i = ib * BN + tl.arange(0, BN)
    j = jb * BM + tl.arange(0, BM)
    low, high = key_range(
        ib * BN, tl.minimum(ib * BN + BN, n) - 1, m, row, lengths, causal, centre, radius, LENGTHS, CAUSAL, WINDOW
    )
    tile = tl.arange(0, BN)[:, None] * m_pad + tl.arange(0, BM)[None, :]
    start = (row * n_pad + ib * BN) * m_pad + jb * BM
    ds = tl.zeros([BN, BM], tl.float32)
    if (jb * BM < high) & (jb * BM + BM > low):
        for first in range(0, dv, BV):
            c = first + tl.arange(0, BV)
            inside = (i < n)[:, None] & (c < dv)[None, :]
            at = row * o_r + i[:, None].to(tl.int64) * o_n + c[None, :] * o_d
            do = tl.load(grad + at, mask=inside, other=0.0)
            there = (j < high)[None, :] & (c < dv)[:, None]
            near = row * v_r + j[None, :].to(tl.int64) * v_m + c[:, None] * v_d
            value = tl.load(values + near, mask=there, other=0.0)
            ds = product(do, value, ds)
        p = power(tl.load(scored + start + tile) - tl.load(lse + row * n_pad + i)[:, None])
        ds = p * (ds - tl.load(delta + row * n_pad + i)[:, None]) / temperature
    tl.store(g + start + tile, ds)
    tile = tl.arange(0, BM)[:, None] * n_pad + tl.arange(0, BN)[None, :]
    tl.store(turned + (row * m_pad + jb * BM) * n_pad + ib * BN + tile, tl.trans(ds))


@triton.jit(do_not_specialize=["n", "m", "causal", "centre", "radius"])
@no_type_check
def value_gradients(
    scored, lse, grad, out, n, m, dv, n_pad, m_pad, o_r, o_n, o_d, lengths, causal, centre, radius,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Compute dV_j = Σ_i P_ij dO_i of BM keys, BV columns."""
    jb, piece, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    j = jb * BM + tl.arange(0, BM)
    c = piece * BV + tl.arange(0, BV)
    low, high = query_range(
        jb * BM, tl.minimum(jb * BM + BM, m) - 1, n, row, lengths, causal, centre, radius, LENGTHS, CAUSAL, WINDOW
    )
    total = tl.zeros([BM, BV], tl.float32)
    tile = tl.arange(0, BN)[:, None] * m_pad + tl.arange(0, BM)[None, :]
    for first in range(low // BN * BN, high, BN):
        i = first + tl.arange(0, BN)
        s = tl.load(scored + (row * n_pad + first) * m_pad + jb * BM + tile)
        # With a window and causality, some blocks of queries in this range see none of these keys: the forward pass
        # has not written their scores.
        least, most = key_range(
            first, tl.minimum(first + BN, n) - 1, m, row, lengths, causal, centre, radius, LENGTHS, CAUSAL, WINDOW
        )
        s = tl.where((jb * BM < most) & (jb * BM + BM > least), s, -float("inf"))
        p = tl.trans(power(s - tl.load(lse + row * n_pad + i)[:, None]))
        inside = (i < n)[:, None] & (c < dv)[None, :]
        at = row * o_r + i[:, None].to(tl.int64) * o_n + c[None, :] * o_d
        do = tl.load(grad + at, mask=inside, other=0.0)
        total = product(p.to(do.dtype), do, total)
    here = (j < m)[:, None] & (c < dv)[None, :]
    tl.store(out + (row * m + j[:, None]) * dv + c[None, :], total.to(out.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["n", "m", "causal", "centre", "radius"])
@no_type_check
def sweep(
    own, other, most_own, most_other, g, out, part, again, x, y, v,
    n, m, h, n_pad, m_pad, h_pad, heads, x_r, x_n, x_h, y_r, y_m, y_h, v_a,
    lengths, causal, centre, radius,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, VECTOR: tl.constexpr, BLOCK: tl.constexpr,
    OR: tl.constexpr, OT: tl.constexpr, DR: tl.constexpr, DT: tl.constexpr,
    RESCUE: tl.constexpr,
):  # fmt: skip
    """Compute Σ_j g_ij v (1 - tanh²(q_i + k_j)) of OR·OT queries and 2·DR·DT hidden units, two keys at a time.

    With KEYS, queries and keys swap roles: n, own and x belong to the keys, and g is [m n]. With VECTOR, it also
    computes this block's Σ_ij g_ij tanh. Two keys share one reciprocal, which gives r = 1/x for both, and
    (1 - tanh²)/4 = 1/4 - (r - 1/2)². RESCUE is the second launch, for blocks in which a product of two could overflow.
    """
    block, piece, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    BO: tl.constexpr = OR * OT
    BD: tl.constexpr = 2 * DR * DT
    o = tl.arange(0, OR)[:, None, None, None] * OT + tl.arange(0, OT)[None, None, :, None]  # within the block
    mine = o < n - block * BO
    p = tl.arange(0, DR)[None, :, None, None] * DT + tl.arange(0, DT)[None, None, None, :] + piece * (BD // 2)
    pairs = h_pad // 2
    within = p < pairs
    last = tl.minimum(block * BO + BO, n) - 1
    if KEYS:
        low, high = query_range(block * BO, last, m, row, lengths, causal, centre, radius, LENGTHS, CAUSAL, WINDOW)
    else:
        low, high = key_range(block * BO, last, m, row, lengths, causal, centre, radius, LENGTHS, CAUSAL, WINDOW)
    low = low // 2 * 2
    place = again + (row * tl.num_programs(1) + piece) * tl.num_programs(0) + block
    even = tl.zeros([OR, DR, OT, DT], tl.float32)
    odd = tl.zeros([OR, DR, OT, DT], tl.float32)
    even_v = tl.zeros([OR, DR, 1, DT], tl.float32)
    odd_v = tl.zeros([OR, DR, 1, DT], tl.float32)
    pg = g + ((row * n_pad + block * BO) * m_pad + low) // 2
    og = o * (m_pad // 2)
    if RESCUE:
        if tl.load(place) == 0:
            return
        px = x + row * x_r + (block * BO).to(tl.int64) * x_n
        first_q = tl.load(px + o * x_n + 2 * p * x_h, mask=mine & (2 * p < h), other=0.0).to(tl.float32)
        second_q = tl.load(px + o * x_n + (2 * p + 1) * x_h, mask=mine & (2 * p + 1 < h), other=0.0).to(tl.float32)
        py = y + row * y_r + (row * 0 + low) * y_m  # in 64 bits
        for j in range(low, high, 2):
            g1, g2 = halves(tl.load(pg + og))
            pg += 1
            for step in tl.static_range(2):
                one = g1 if step == 0 else g2
                there = j + step < m
                t = tanh(first_q + tl.load(py + 2 * p * y_h, mask=there & (2 * p < h), other=0.0).to(tl.float32))
                even += one * (0.25 - 0.25 * t * t)
                if VECTOR:
                    even_v -= 0.5 * tl.sum(one * t, 2, keep_dims=True)
                k = tl.load(py + (2 * p + 1) * y_h, mask=there & (2 * p + 1 < h), other=0.0).to(tl.float32)
                t = tanh(second_q + k)
                odd += one * (0.25 - 0.25 * t * t)
                if VECTOR:
                    odd_v -= 0.5 * tl.sum(one * t, 2, keep_dims=True)
                py += y_m
    else:
        # can a product of two overflow?
        d = piece * BD + tl.arange(0, BD)
        grows = tl.load(
            most_own + (row * (n_pad // BLOCK) + block * BO // BLOCK) * h_pad + d, mask=d < h_pad, other=0.0
        )
        other_grows = tl.zeros([BD], tl.float32)
        for b in range(0, m_pad // BLOCK):
            near = most_other + (row * (m_pad // BLOCK) + b) * h_pad + d
            other_grows = tl.maximum(other_grows, tl.load(near, mask=d < h_pad, other=0.0))
        worst = tl.max(2.0 * (tl.maximum(grows, 0.0) + other_grows), 0)
        safe = worst <= SAFE - 2.0
        tl.store(place, tl.where(safe, 0, 1))
        if not safe:
            return
        a1, a2 = halves(tl.load(own + (row * n_pad + block * BO) * pairs + (o * pairs + p), mask=within, other=0))
        ob = tl.minimum(p, pairs - 1)
        low = tl.where(low < high, low, 0)
        pg = g + ((row * n_pad + block * BO) * m_pad + low) // 2
        pb = other + (row * m_pad + low) * pairs
        for _ in range(low, high, 2):
            pair, first, second = tl.load(pg + og), tl.load(pb + ob), tl.load(pb + pairs + ob)
            pg += 1
            pb += 2 * pairs
            g1, g2 = halves(pair)
            b1, b2 = halves(first)
            c1, c2 = halves(second)
            x1 = a1 * b1 + 1.0
            y1 = a1 * c1 + 1.0
            shared = reciprocal(x1 * y1)
            r = shared * y1 - 0.5
            s = shared * x1 - 0.5
            even += g1 * (0.25 - r * r)
            even += g2 * (0.25 - s * s)
            if VECTOR:
                even_v += tl.sum(g1 * r + g2 * s, 2, keep_dims=True)
            x2 = a2 * b2 + 1.0
            y2 = a2 * c2 + 1.0
            shared = reciprocal(x2 * y2)
            r = shared * y2 - 0.5
            s = shared * x2 - 0.5
            odd += g1 * (0.25 - r * r)
            odd += g2 * (0.25 - s * s)
            if VECTOR:
                odd_v += tl.sum(g1 * r + g2 * s, 2, keep_dims=True)
    head = row % heads
    v1 = tl.load(v + head * v_a + 2 * p, mask=2 * p < h, other=0.0).to(tl.float32)
    v2 = tl.load(v + head * v_a + 2 * p + 1, mask=2 * p + 1 < h, other=0.0).to(tl.float32)
    at = out + (row * n + block * BO) * h + (o * h + 2 * p)
    tl.store(at, (even * v1 * 4.0).to(out.dtype.element_ty), mask=mine & (2 * p < h))
    tl.store(at + 1, (odd * v2 * 4.0).to(out.dtype.element_ty), mask=mine & (2 * p + 1 < h))
    if VECTOR:
        at = part + (row * tl.num_programs(0) + block) * h_pad + 2 * p
        tl.store(at, -2.0 * tl.sum(even_v, 0, keep_dims=True), mask=within)
        tl.store(at + 1, -2.0 * tl.sum(odd_v, 0, keep_dims=True), mask=within)
