r"""The gradients of additive attention in a recurrence, where the queries come one after the other (Triton).

With weights a, scores e and t = tanh(q + k): $da_j = dc \cdot v_j$, $de_j = a_j (da_j - \sum_l a_l da_l)$ and
$dq = w \circ \sum_j de_j (1 - t_j^2)$, w the score's vector. A step needs no more. What steps add to keys and to the
vector is gathered after the last one, $dk_j = w \circ \sum_i de_{ij} (1 - t_{ij}^2)$, $dw = \sum_{ij} de_{ij} t_{ij}$,
so that no step reads and writes a gradient of all keys; that of the values is then one product, $A^\top dC$.
"""

# r rows · n steps · m keys · h hidden · dv value width
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from regard.kernels.additive.few_queries_kernels import tanh
from regard.kernels.triton import interpreted


@triton.jit(do_not_specialize=["m", "weight_row", "given_weight_row", "raw_row", "score_row"])
@no_type_check
def step_kernel(
    query,  # [r h]
    keys,  # [r m h]
    values,  # [r m dv]
    vector,  # [h]
    lengths,  # [r]
    weights,  # [r m] float32
    first_part,  # [r dv]: of the context's gradient
    second_part,  # [r dv]
    given_weights,  # [r m]: of the weights' own gradient
    raw,  # [r m] float32: room for the gradient of the weights
    d_context,  # [r dv], written: the sum of both parts
    d_scores,  # [r m] float32, written
    d_query,  # [r h], written
    m, h, dv, query_row, key_row, key_step, value_row, value_step, weight_row, first_row, second_row, given_weight_row,
    raw_row, context_row, score_row, d_query_row,
    SECOND: tl.constexpr, GIVEN: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr, BK: tl.constexpr, BH: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    end = tl.minimum(tl.load(lengths + row).to(tl.int32), m)
    query += row * query_row
    keys += row * key_row
    values += row * value_row
    weights += row * weight_row
    raw += row * raw_row
    d_context += row * context_row
    d_scores += row * score_row
    for start in range(0, dv, BV):
        x = start + tl.arange(0, BV)
        some = x < dv
        whole = tl.load(first_part + row * first_row + x, mask=some, other=0.0).to(tl.float32)
        if SECOND:
            whole += tl.load(second_part + row * second_row + x, mask=some, other=0.0).to(tl.float32)
        tl.store(d_context + x, whole.to(d_context.dtype.element_ty), mask=some)
    tl.debug_barrier()

    flat = tl.zeros([BM, 1], tl.int32)  # equal rows, so that no thread asks another for the gradient
    shared = tl.zeros([BM], tl.float32)
    for first in range(0, end, BM):
        j = first + tl.arange(0, BM)
        real = j < end
        wide = tl.zeros([BM, BV], tl.float32)
        for start in range(0, dv, BV):
            x = start + tl.arange(0, BV)
            some = x < dv
            by = tl.load(d_context + x[None, :] + flat, mask=(x[None, :] + flat) < dv, other=0.0).to(tl.float32)
            value = tl.load(
                values + j[:, None] * value_step + x[None, :], mask=real[:, None] & some[None, :], other=0.0
            )
            wide += by * value.to(tl.float32)
        da = tl.sum(wide, 1)
        if GIVEN:
            da += tl.load(given_weights + row * given_weight_row + j, mask=real, other=0.0).to(tl.float32)
        tl.store(raw + j, da, mask=real)
        shared += da * tl.load(weights + j, mask=real, other=0.0)
    delta = tl.sum(shared, 0)
    tl.debug_barrier()

    for start in range(0, h, BH):
        x = start + tl.arange(0, BH)
        some = x < h
        q = tl.load(query + x, mask=some, other=0.0).to(tl.float32)
        slope = tl.zeros([BK, BH], tl.float32)
        for first in range(0, end, BK):
            j = first + tl.arange(0, BK)
            real = j < end
            de = tl.load(weights + j, mask=real, other=0.0) * (tl.load(raw + j, mask=real, other=0.0) - delta)
            k = tl.load(keys + j[:, None] * key_step + x[None, :], mask=real[:, None] & some[None, :], other=0.0)
            t = tanh(q[None, :] + k.to(tl.float32), INTERPRETED)
            slope += de[:, None] * (1 - t * t)
        dq = tl.sum(slope, 0) * tl.load(vector + x, mask=some, other=0.0).to(tl.float32)
        tl.store(d_query + row * d_query_row + x, dq.to(d_query.dtype.element_ty), mask=some)
    for first in range(0, m, BM):
        j = first + tl.arange(0, BM)
        real = j < end
        de = tl.load(weights + j, mask=real, other=0.0) * (tl.load(raw + j, mask=real, other=0.0) - delta)
        tl.store(d_scores + j, de, mask=j < m)


TILES = 8, 8, 2  # keys of a block of the values and of the scores, and warps, as measured on an H200


def step_gradients(
    query: Float[Tensor, "r h"],
    keys: Float[Tensor, "r m h"],
    values: Float[Tensor, "r m dv"],
    vector: Float[Tensor, " h"],
    lengths: Int[Tensor, " r"],
    weights: Float[Tensor, "r m"],
    parts: tuple[Float[Tensor, "r dv"], Float[Tensor, "r dv"] | None],
    d_output: Float[Tensor, "r m"] | None,
    raw: Float[Tensor, "r m"],
    d_context: Float[Tensor, "r dv"],
    d_scores: Float[Tensor, "r m"],
    d_query: Float[Tensor, "r h"],
) -> None:
    """Compute the gradients of one query a row from those of its context, in one or two parts, and of its weights.

    `raw` is room that it may write. All rows of numbers lie side by side (unit strides).
    """
    (r, m, h), dv = keys.shape, values.shape[2]
    first, second = parts
    wide, half = min(512, triton.next_power_of_2(h)), values.dtype.itemsize == 2
    summed, scored, warps = TILES
    if not r:
        return
    step_kernel[(r,)](
        query, keys, values, vector, lengths, weights, first, first if second is None else second,
        weights if d_output is None else d_output, raw, d_context, d_scores, d_query, m, h, dv, query.stride(0),
        keys.stride(0), keys.stride(1), values.stride(0), values.stride(1), weights.stride(0), first.stride(0),
        0 if second is None else second.stride(0), 0 if d_output is None else d_output.stride(0), raw.stride(0),
        d_context.stride(0), d_scores.stride(0), d_query.stride(0),
        SECOND=second is not None, GIVEN=d_output is not None, BM=summed,
        BV=max(16, min(256 if half else 128, triton.next_power_of_2(dv))), BK=scored, BH=wide,
        INTERPRETED=interpreted(), num_warps=warps,
    )  # fmt: skip


@triton.jit(do_not_specialize=["n", "m", "score_row", "score_step"])
@no_type_check
def gather_kernel(
    query,  # [r n h]
    keys,  # [r m h]
    vector,  # [h]
    lengths,
    d_scores,  # [r n m] float32
    d_keys,  # [r m h], written
    d_vector,  # [r h] float32, written: a row's share
    n, m, h, query_row, query_step, key_row, key_step, score_row, score_step, d_key_row, d_key_step,
    BM: tl.constexpr, BH: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x = tl.program_id(1) * BH + tl.arange(0, BH)
    some = x < h
    end = tl.minimum(tl.load(lengths + row).to(tl.int32), m)
    query += row * query_row
    keys += row * key_row
    d_scores += row * score_row
    d_keys += row * d_key_row
    v = tl.load(vector + x, mask=some, other=0.0).to(tl.float32)
    whole = tl.zeros([BM, BH], tl.float32)
    for first in range(0, m, BM):
        j = first + tl.arange(0, BM)
        real = j < end
        slope = tl.zeros([BM, BH], tl.float32)
        if first < end:
            k = tl.load(keys + j[:, None] * key_step + x[None, :], mask=real[:, None] & some[None, :], other=0.0)
            k = k.to(tl.float32)
            query_at, d_score_at = query + x, d_scores + j
            for _ in range(n):
                q = tl.load(query_at, mask=some, other=0.0).to(tl.float32)
                de = tl.load(d_score_at, mask=real, other=0.0)
                query_at += query_step
                d_score_at += score_step
                t = tanh(q[None, :] + k, INTERPRETED)
                turned = de[:, None] * t
                whole += turned
                slope += de[:, None] - turned * t
        place = d_keys + j[:, None] * d_key_step + x[None, :]
        tl.store(place, (slope * v[None, :]).to(d_keys.dtype.element_ty), mask=(j < m)[:, None] & some[None, :])
    tl.store(d_vector + row * h + x, tl.sum(whole, 0), mask=some)


def key_gradients(
    query: Float[Tensor, "r n h"],
    keys: Float[Tensor, "r m h"],
    vector: Float[Tensor, " h"],
    lengths: Int[Tensor, " r"],
    d_scores: Float[Tensor, "r n m"],
) -> tuple[Float[Tensor, "r m h"], Float[Tensor, " h"]]:
    """Compute the gradients of keys and vector from those of all steps' scores."""
    (r, n, h), m = query.shape, keys.shape[1]
    d_keys = keys.new_empty(r, m, h)
    shares = keys.new_empty(r, h, dtype=torch.float32)
    wide = min(64, max(16, triton.next_power_of_2(h)))
    if r:
        gather_kernel[(r, triton.cdiv(h, wide))](
            query, keys, vector, lengths, d_scores, d_keys, shares, n, m, h, query.stride(0), query.stride(1),
            keys.stride(0), keys.stride(1), d_scores.stride(0), d_scores.stride(1), d_keys.stride(0), d_keys.stride(1),
            BM=16 if m <= 16 else 32, BH=wide, INTERPRETED=interpreted(), num_warps=4,
        )  # fmt: skip
    return d_keys, shares.sum(0)
