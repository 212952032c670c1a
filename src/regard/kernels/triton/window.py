"""Local-p attention in Triton: softmax over a window around a predicted centre, then the Gaussian (Luong et al. 2015).

Forward and backward read only the keys of a window: each program has one query, whose window must fit its registers.
The windows of neighbouring queries may lie anywhere, so that queries share no tile. A key's gradient is summed by a
program for that key, which finds the queries that reach it, in a fixed order: the result is the same to the last bit.
"""

# b batch · r rows: all leading dimensions as one · a heads · n queries · m keys · d width · dv value width
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.reference import Call
from regard.kernels.span_limits import merge_batch
from regard.kernels.triton import operation
from regard.kernels.triton.additive_forward import NONE, start_of
from regard.kernels.triton.arithmetic import product, tanh


def attend(call: Call) -> Tensor:
    """Compute the reference's sum for a bilinear or an additive score and softmax, under lengths and causality."""
    limits, window = call.limits, call.limits.window
    assert window is not None
    assert window.centre is not None
    batch = call.batch

    def each(value: Tensor) -> Tensor:  # contiguous, as kernels need it: a reshape may keep stride 0
        return merge_batch(value, batch, 0).contiguous()

    tensors = (call.query, call.keys, call.values, window.centre, call.vector)
    save = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    context = serve(
        *(merge_batch(x, batch) for x in (call.query, call.keys, call.values)),
        merge_batch(window.centre.float().expand(*batch, limits.queries), batch, 1),
        call.vector if call.vector is None or call.vector.ndim == 2 else call.vector[None],
        None if limits.lengths is None else each(limits.lengths),
        each(limits.causal) if isinstance(limits.causal, Tensor) else None,
        limits.causal if isinstance(limits.causal, int) else NONE,
        window.radius,
        0.0 if window.sigma is None else 0.5 / window.sigma**2,
        (1.0 if call.vector is not None else call.scale) / call.temperature,
        save,
    )[0]
    return context.reshape(*batch, *context.shape[-2:])


def compute(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    centre: Tensor,
    vector: Tensor | None,
    lengths: Tensor | None,
    causal: Tensor | None,
    start: int,
    radius: int,
    spread: float,
    scale: float,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return contexts [r n dv] of [r n d], [r m d], [r m dv], centres [r n] and maybe [a d]; and tensors for backward.

    These are the softmax over each window, [r n w], and each window's first key and number of keys, [r n 2]; they are
    empty unless `save` is set.
    """
    (rows, n, d), (m, dv) = query.shape, values.shape[-2:]
    context = values.new_empty(rows, n, dv)
    plain, bounds = allocate_saved(query, radius, save)
    if context.numel() == 0 or m == 0:
        return context.zero_(), plain.zero_(), bounds.zero_()
    attend_kernel[(n, rows)](
        query, keys, values, query if vector is None else vector, centre.contiguous(), lengths,
        start if causal is None else causal, context, plain, bounds,
        n, m, d, dv, 1 if vector is None else vector.shape[0], window_size(radius), radius, scale, spread,
        *query.stride(), *keys.stride(), *values.stride(), 0 if vector is None else vector.stride(0),
        LENGTHS=lengths is not None, CAUSAL=2 if causal is not None else 0 if start == NONE else 1,
        GAUSSIAN=spread > 0, ADDITIVE=vector is not None, SAVE=save, **blocks(radius), num_warps=4,
    )  # fmt: skip
    return context, plain, bounds


def allocate_saved(query: Tensor, radius: int, save: bool) -> tuple[Tensor, Tensor]:
    """Allocate the tensors for the backward pass, empty unless `save` is set."""
    rows, n = query.shape[:2] if save else (0, 0)
    plain = query.new_empty((rows, n, window_size(radius)), dtype=torch.float32)
    return plain, query.new_empty((rows, n, 2), dtype=torch.int32)


def shapes(query, keys, values, *others):  # type: ignore[no-untyped-def]
    """Return empty tensors with the shapes of `compute`'s results."""
    *_, radius, _, _, save = others
    return values.new_empty(*query.shape[:2], values.shape[-1]), *allocate_saved(query, radius, save)


def compute_backward(
    grad: Tensor,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    centre: Tensor,
    vector: Tensor | None,
    radius: int,
    spread: float,
    scale: float,
    plain: Tensor,
    bounds: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of query, keys, values, centre and vector (empty without one)."""
    (rows, n, d), (m, dv), width = query.shape, values.shape[-2:], window_size(radius)
    if plain.numel() == 0 or values.numel() == 0:
        none = query.new_zeros(0) if vector is None else torch.zeros_like(vector)
        zeros = torch.zeros_like
        return zeros(query), zeros(keys), zeros(values), zeros(centre), none
    d_query, d_keys, d_values, d_centre = (x.new_empty(x.shape) for x in (query, keys, values, centre))
    ds, weights = torch.empty_like(plain), torch.empty_like(plain)
    heads, stride = (1, 0) if vector is None else (vector.shape[0], vector.stride(0))
    query_gradients[(n, rows)](
        query, keys, values, query if vector is None else vector, centre.contiguous(), grad, plain, bounds,
        d_query, d_centre, ds, weights,
        n, d, dv, heads, width, scale, spread,
        *query.stride(), *keys.stride(), *values.stride(), *grad.stride(), stride,
        GAUSSIAN=spread > 0, ADDITIVE=vector is not None, **blocks(radius), num_warps=4,
    )  # fmt: skip
    blocks_of_keys = -(-m // KEYS)

    def summed(what: Tensor, x: Tensor, out: Tensor) -> None:
        piece = min(128, max(16, 1 << (x.shape[-1] - 1).bit_length()))
        key_sums[(blocks_of_keys, -(-x.shape[-1] // piece), rows)](
            what, bounds, x, out, n, m, x.shape[-1], width, *x.stride(),
            BK=KEYS, BN=32, BD=piece, num_warps=4,
        )  # fmt: skip

    summed(weights, grad, d_values)
    if vector is None:
        summed(ds, query, d_keys)
        return d_query, d_keys, d_values, d_centre, query.new_empty(0)
    part = plain.new_empty((rows, blocks_of_keys, d))
    piece = min(128, max(16, 1 << (d - 1).bit_length()))
    additive_key_gradients[(blocks_of_keys, -(-d // piece), rows)](
        ds, bounds, query, keys, vector, d_keys, part, n, m, d, heads, width, *query.stride(), *keys.stride(), stride,
        BK=KEYS, BN=32, BD=piece, num_warps=4,
    )  # fmt: skip
    return d_query, d_keys, d_values, d_centre, part.unflatten(0, (-1, heads)).sum((0, 2)).to(vector.dtype)


KEYS = 16  # keys per program in the kernels that sum over queries


def window_size(radius: int) -> int:
    """Return the number of slots of a window: its keys, and one at either end that may lie outside."""
    return 2 * radius + 3


def blocks(radius: int) -> dict[str, int]:
    """Return how many keys, and how many columns of each, a program holds: 4,096 numbers, 32 registers per thread."""
    window = max(16, 1 << (window_size(radius) - 1).bit_length())
    return {"BW": window, "BD": max(16, min(128, 4096 // window))}


def gradient_shapes(grad, query, keys, values, centre, vector, *others):  # type: ignore[no-untyped-def]
    """Return empty tensors with the shapes of the gradients."""
    grads = (x.new_empty(x.shape) for x in (query, keys, values, centre))
    return *grads, query.new_empty(0) if vector is None else vector.new_empty(vector.shape)


def keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    query, keys, values, centre, vector, *_, radius, spread, scale, _ = inputs
    ctx.save_for_backward(query, keys, values, centre, vector, *output[1:])
    ctx.numbers = radius, spread, scale
    ctx.set_materialize_grads(False)


def gradients(ctx, grad, backward):  # type: ignore[no-untyped-def]
    if grad is None:
        return (None,) * 12
    *inputs, plain, bounds = ctx.saved_tensors
    grads = list(backward(grad, *inputs, *ctx.numbers, plain, bounds))
    if inputs[-1] is None:
        grads[-1] = None
    return *grads, *(None,) * 7


predicted, serve = operation("predicted_window", compute, compute_backward, (shapes, gradient_shapes), keep, gradients)


# ---- kernels


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
def attend_kernel(
    query, keys, values, v, centre, lengths, causal, out, plain, bounds,
    n, m, d, dv, heads, width, radius, scale, spread, q_r, q_n, q_d, k_r, k_m, k_d, v_r, v_m, v_d, v_a,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, GAUSSIAN: tl.constexpr, ADDITIVE: tl.constexpr, SAVE: tl.constexpr,
    BW: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Attend from one query: softmax over its window, Gaussian, sum; save the softmax, the first key, the key count."""
    i, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    p = tl.load(centre + row * n + i)
    # one more key at either end: the test below, with the reference's rounding, decides whether it is inside
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
    """Compute the gradients of one query and its centre; save the gradients of its scores and its weights, [r n w]."""
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
    """Compute Σ_i weight_ij x_i for BK keys, BD columns, over the blocks of queries that reach them."""
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
    """Compute Σ_i g_ij v (1 - tanh²(q_i + k_j)) for BK keys, BD hidden units, and these keys' share of v's gradient."""
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
