"""Triton kernels of local-p attention: a program a query forward, and a program a block of keys for their gradients."""

# r rows · n queries · m keys · w places of a window · d width, or hidden width of an additive score
from typing import no_type_check

import triton
import triton.language as tl

from regard.kernels.additive.forward_kernels import product, start_of, tanh


@triton.jit
@no_type_check
def score_keys(query, keys, v, j, in_window, d, q_d, k_m, k_d, scale, ADDITIVE: tl.constexpr, BD: tl.constexpr):
    """Compute the scores of one query with the keys j."""
    total = tl.zeros(j.shape, tl.float32)
    for first in range(0, d, BD):
        c = first + tl.arange(0, BD)
        inside = c < d
        q = tl.load(query + c * q_d, mask=inside, other=0.0).to(tl.float32)
        k = tl.load(
            keys + j[:, None].to(tl.int64) * k_m + c[None, :] * k_d,
            mask=in_window[:, None] & inside[None, :],
            other=0.0,
        ).to(tl.float32)
        if ADDITIVE:
            vector = tl.load(v + c, mask=inside, other=0.0).to(tl.float32)
            total += tl.sum(vector[None, :] * tanh(q[None, :] + k), 1)
        else:
            total += tl.sum(q[None, :] * k, 1)
    return total * scale


@triton.jit
@no_type_check
def gate(distance, spread, GAUSSIAN: tl.constexpr):
    """Compute the gate exp(-distance² · spread), spread = 1/2σ²; 1 without a Gaussian."""
    if GAUSSIAN:
        return tl.exp(-distance * distance * spread)
    else:
        return distance * 0.0 + 1.0


@triton.jit(do_not_specialize=["n", "m", "causal", "radius"])
@no_type_check
def attend(
    query, keys, values, v, centre, lengths, causal, out, plain, bounds,
    n, m, d, dv, heads, width, radius, scale, spread, q_r, q_n, q_d, k_r, k_m, k_d, v_r, v_m, v_d, v_a,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, GAUSSIAN: tl.constexpr, ADDITIVE: tl.constexpr, SAVE: tl.constexpr,
    BW: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Attend from one query: softmax over its window, Gaussian, sum; save the softmax, the first key, how many keys."""
    i, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    p = tl.load(centre + row * n + i)
    # one key more at either end: whether it is inside is asked below as the reference asks, with the same rounding
    first = tl.maximum(tl.floor(p - radius), 0.0).to(tl.int32)
    last = tl.minimum(tl.ceil(p + radius), m - 1.0).to(tl.int32)
    if LENGTHS:
        last = tl.minimum(last, tl.load(lengths + row).to(tl.int32) - 1)
    if CAUSAL > 0:
        last = tl.minimum(last, start_of(causal, row, CAUSAL) + i)
    w = tl.arange(0, BW)
    j = first + w
    distance = j.to(tl.float32) - p
    in_window = (j <= last) & (tl.abs(distance) <= radius)
    s = score_keys(
        query + row * q_r + i.to(tl.int64) * q_n, keys + row * k_r, v + (row % heads) * v_a, j, in_window,
        d, q_d, k_m, k_d, scale, ADDITIVE, BD,
    )  # fmt: skip
    s = tl.where(in_window, s, -1e30)
    weight = tl.where(in_window, tl.exp(s - tl.max(s, 0)), 0.0)
    mass = tl.sum(weight, 0)
    weight = weight / tl.where(mass > 0, mass, 1.0)
    if SAVE:
        tl.store(plain + (row * n + i) * width + w, weight, mask=w < width)
        tl.store(bounds + (row * n + i) * 2, first)
        tl.store(bounds + (row * n + i) * 2 + 1, tl.maximum(last - first + 1, 0))
    weight = weight * gate(distance, spread, GAUSSIAN)
    for start in range(0, dv, BD):
        c = start + tl.arange(0, BD)
        at = values + row * v_r + j[:, None].to(tl.int64) * v_m + c[None, :] * v_d
        value = tl.load(at, mask=in_window[:, None] & (c < dv)[None, :], other=0.0).to(tl.float32)
        total = tl.sum(weight[:, None] * value, 0)
        tl.store(out + (row * n + i) * dv + c, total.to(out.dtype.element_ty), mask=c < dv)


@triton.jit(do_not_specialize=["n"])
@no_type_check
def query_gradients(
    query, keys, values, v, centre, grad, plain, bounds, d_query, d_centre, ds, weights,
    n, d, dv, heads, width, scale, spread, q_r, q_n, q_d, k_r, k_m, k_d, v_r, v_m, v_d, o_r, o_n, o_d, v_a,
    GAUSSIAN: tl.constexpr, ADDITIVE: tl.constexpr, BW: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Compute one query's gradient and its centre's; the scores' gradients and the weights are saved, [r n w]."""
    i, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    p = tl.load(centre + row * n + i)
    first = tl.load(bounds + (row * n + i) * 2)
    count = tl.load(bounds + (row * n + i) * 2 + 1)
    w = tl.arange(0, BW)
    j = first + w
    in_window = w < count
    change = tl.zeros([BW], tl.float32)
    for start in range(0, dv, BD):
        c = start + tl.arange(0, BD)
        do = tl.load(grad + row * o_r + i.to(tl.int64) * o_n + c * o_d, mask=c < dv, other=0.0).to(tl.float32)
        at = values + row * v_r + j[:, None].to(tl.int64) * v_m + c[None, :] * v_d
        value = tl.load(at, mask=in_window[:, None] & (c < dv)[None, :], other=0.0).to(tl.float32)
        change += tl.sum(value * do[None, :], 1)
    share = tl.load(plain + (row * n + i) * width + w, mask=in_window, other=0.0)
    distance = j.to(tl.float32) - p
    weight = share * gate(distance, spread, GAUSSIAN)
    change = change * weight
    g = (change - share * tl.sum(change, 0)) * scale
    offset = (row * n + i) * width + w
    tl.store(weights + offset, weight, mask=w < width)
    tl.store(ds + offset, g, mask=w < width)
    tl.store(d_centre + row * n + i, tl.sum(change * distance, 0) * (2.0 * spread))
    for start in range(0, d, BD):
        c = start + tl.arange(0, BD)
        inside = c < d
        at = keys + row * k_r + j[:, None].to(tl.int64) * k_m + c[None, :] * k_d
        k = tl.load(at, mask=in_window[:, None] & inside[None, :], other=0.0).to(tl.float32)
        if ADDITIVE:
            q = tl.load(query + row * q_r + i.to(tl.int64) * q_n + c * q_d, mask=inside, other=0.0).to(tl.float32)
            t = tanh(q[None, :] + k)
            k = (1.0 - t * t) * tl.load(v + (row % heads) * v_a + c, mask=inside, other=0.0).to(tl.float32)[None, :]
        total = tl.sum(g[:, None] * k, 0)
        tl.store(d_query + (row * n + i) * d + c, total.to(d_query.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["n", "m"])
@no_type_check
def key_sums(
    weights, bounds, x, out, n, m, d, width, x_r, x_n, x_d,
    BK: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Sum Σ_i weight_ij x_i for BK keys, BD numbers wide, over the blocks of queries that reach them."""
    block, piece, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    j = block * BK + tl.arange(0, BK)
    c = piece * BD + tl.arange(0, BD)
    total = tl.zeros([BK, BD], tl.float32)
    for start in range(0, n, BN):
        i = start + tl.arange(0, BN)
        first = tl.load(bounds + (row * n + i) * 2, mask=i < n, other=0)
        count = tl.load(bounds + (row * n + i) * 2 + 1, mask=i < n, other=0)
        near = (first < block * BK + BK) & (first + count > block * BK)
        if tl.max(near.to(tl.int32), 0) > 0:
            w = j[:, None] - first[None, :]
            reached = (w >= 0) & (w < count[None, :])
            weight = tl.load(weights + (row * n + i)[None, :] * width + w, mask=reached, other=0.0)
            at = x + row * x_r + i[:, None].to(tl.int64) * x_n + c[None, :] * x_d
            some = tl.load(at, mask=(i < n)[:, None] & (c < d)[None, :], other=0.0)
            total = product(weight, some.to(tl.float32), total)
    here = (j < m)[:, None] & (c < d)[None, :]
    tl.store(out + (row * m + j[:, None]) * d + c[None, :], total.to(out.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["n", "m"])
@no_type_check
def additive_key_gradients(
    ds, bounds, query, keys, v, out, part, n, m, d, heads, width, q_r, q_n, q_d, k_r, k_m, k_d, v_a,
    BK: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Σ_i g_ij v (1 - tanh²(q_i + k_j)) for BK keys, BD hidden units, and these keys' share of the gradient of v."""
    block, piece, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    j = block * BK + tl.arange(0, BK)
    c = piece * BD + tl.arange(0, BD)
    inside = c < d
    at = keys + row * k_r + j[:, None].to(tl.int64) * k_m + c[None, :] * k_d
    k = tl.load(at, mask=(j < m)[:, None] & inside[None, :], other=0.0).to(tl.float32)
    total = tl.zeros([BK, BD], tl.float32)
    share = tl.zeros([BK, BD], tl.float32)
    for start in range(0, n, BN):
        near_i = start + tl.arange(0, BN)
        first = tl.load(bounds + (row * n + near_i) * 2, mask=near_i < n, other=0)
        count = tl.load(bounds + (row * n + near_i) * 2 + 1, mask=near_i < n, other=0)
        near = (first < block * BK + BK) & (first + count > block * BK)
        if tl.max(near.to(tl.int32), 0) > 0:
            for i in range(start, tl.minimum(start + BN, n)):
                one = tl.load(bounds + (row * n + i) * 2)
                many = tl.load(bounds + (row * n + i) * 2 + 1)
                if (one < block * BK + BK) & (one + many > block * BK):
                    w = j - one
                    g = tl.load(ds + (row * n + i) * width + w, mask=(w >= 0) & (w < many), other=0.0)
                    q = tl.load(query + row * q_r + (row * 0 + i) * q_n + c * q_d, mask=inside, other=0.0)
                    t = tanh(q.to(tl.float32)[None, :] + k)
                    total += g[:, None] * (1.0 - t * t)
                    share += g[:, None] * t
    vector = tl.load(v + (row % heads) * v_a + c, mask=inside, other=0.0).to(tl.float32)
    here = (j < m)[:, None] & inside[None, :]
    tl.store(
        out + (row * m + j[:, None]) * d + c[None, :], (total * vector[None, :]).to(out.dtype.element_ty), mask=here
    )
    tl.store(part + (row * tl.num_programs(0) + block) * d + c, tl.sum(share, 0), mask=inside)
