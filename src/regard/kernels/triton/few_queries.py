r"""Additive softmax attention of a few queries per row on a GPU, for the steps of a search or a recurrence.

Memory and launches limit such calls, not arithmetic. One program per row walks its keys three times: scores, softmax,
sum of the values. [r n m h] is never held in memory. If rows are too few to fill the GPU and keys are many, several
programs share a row, and a second kernel combines their results. All arithmetic is in float32.

The gradients are those of a recurrence, where queries arrive one after the other. With weights a, scores e and
t = tanh(q + k): $da_j = dc \cdot v_j$, $de_j = a_j (da_j - \sum_l a_l da_l)$ and
$dq = w \circ \sum_j de_j (1 - t_j^2)$, w the score's vector. A step computes only these. The gradients of keys and the
vector are computed after the last step, $dk_j = w \circ \sum_i de_{ij} (1 - t_{ij}^2)$,
$dw = \sum_{ij} de_{ij} t_{ij}$, so that no step reads and writes a gradient of all keys; that of the values is then one
product, $A^\top dC$.
"""

# r rows · n queries, or steps · m keys · h hidden · dv value width · s splits of the keys
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from regard.kernels.reference import Call
from regard.kernels.span_limits import merge_batch
from regard.kernels.triton.arithmetic import INTERPRETED, tanh

ROWS, MANY = 264, 512  # split if there are fewer rows than two per multiprocessor, and at least so many keys
MAX_SPLITS = 64  # programs that share a row
LANES = 256  # half-precision numbers that a warp reads at once, 16 bytes per thread


def attend(call: Call) -> Tensor:
    """Compute the reference's sum, without a gradient."""
    assert call.vector is not None
    batch, lengths, vector = call.batch, call.limits.lengths, call.vector
    if lengths is not None:
        lengths = merge_batch(lengths, batch, 0).contiguous()  # a reshape may keep stride 0
    if vector.ndim == 2:
        vector = merge_batch(vector, batch, 1)
    query, keys, values = (merge_batch(x, batch) for x in (call.query, call.keys, call.values))
    context, _ = look(query, keys, values, vector, lengths, call.temperature)
    return context.view(*batch, *context.shape[1:])


def split_keys(rows: int, keys: int) -> tuple[int, int]:
    """Return the number of programs per row, several if rows do not fill the GPU, and the number of keys of each."""
    splits = min(-(-ROWS // rows), -(-keys // 128), MAX_SPLITS) if rows < ROWS and keys >= MANY else 1
    chunk = -(-keys // splits)
    return -(-keys // chunk), chunk


def look(
    query: Float[Tensor, "r n h"],
    keys: Float[Tensor, "r m h"],
    values: Float[Tensor, "r m dv"],
    vector: Float[Tensor, "*r h"],
    lengths: Int[Tensor, " r"] | None = None,
    temperature: float = 1.0,
    *,
    context: Float[Tensor, "r n dv"] | None = None,
    weights: Float[Tensor, "r n m"] | None = None,
) -> tuple[Float[Tensor, "r n dv"], Float[Tensor, "r n m"]]:
    """Compute contexts, in the dtype of the values, and weights, in float32; at most 16 queries per row.

    It writes to `context` and `weights` if they are given. Nothing is saved for a backward pass.
    """
    (r, n, h), m, dv = query.shape, keys.shape[1], values.shape[2]
    query, keys, values, vector = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, keys, values, vector))
    if context is None:
        context = values.new_empty(r, n, dv)
    if weights is None:
        weights = values.new_empty(r, n, m, dtype=torch.float32)
    if not r or not n:
        return context, weights
    if not m:
        return context.zero_(), weights
    splits, chunk = split_keys(r, m)
    parts, tops, totals = context[None], weights, weights  # without splits, the last two are placeholders
    if splits > 1:
        parts = values.new_empty(splits, r, n, dv, dtype=torch.float32)
        tops, totals = values.new_empty(2, splits, r, n, dtype=torch.float32).unbind(0)
    # Keys per iteration for the scores and for the sum of values, columns of the values, and warps, as measured on an
    # H200.
    half = values.dtype.itemsize == 2
    scored, summed, columns, warps = (8, 16, 256, 4) if n > 1 else (8, 16, 512, 2 if half else 4)
    wide, short = min(LANES, triton.next_power_of_2(h)), max(32, triton.next_power_of_2(chunk))
    look_kernel[(r, splits)](
        query, keys, values, vector, lengths if lengths is not None else query, weights, parts, tops, totals, n, m, h,
        dv, chunk, 1 / temperature, query.stride(0), query.stride(1), keys.stride(0), keys.stride(1), values.stride(0),
        values.stride(1), vector.stride(0) if vector.ndim == 2 else 0, weights.stride(0), weights.stride(1),
        parts.stride(0), parts.stride(1), parts.stride(2),
        LENGTHS=lengths is not None, SPLIT=splits > 1, BN=1 if n == 1 else 16, BK=scored, BM=summed, BH=wide,
        BLOCKS=1 if h <= wide else 2 if h <= 2 * wide else 0, BS=min(128, short), SHORT=short <= 128,
        BV=max(16, min(columns, triton.next_power_of_2(dv))), num_warps=warps,
    )  # fmt: skip
    if splits > 1:
        combine_kernel[(r, n)](
            parts, tops, totals, weights, context, n, m, dv, chunk, splits, parts.stride(0), parts.stride(1),
            parts.stride(2), weights.stride(0), weights.stride(1), context.stride(0), context.stride(1),
            BSPLIT=triton.next_power_of_2(splits), BS=256, BV=64, num_warps=4,
        )  # fmt: skip
    return context, weights


# ---- kernels


@triton.jit(do_not_specialize=["m", "chunk", "weight_row", "weight_step"])  # these change from batch to batch
@no_type_check
def look_kernel(
    query,  # [r n h]
    keys,  # [r m h]
    values,  # [r m dv]
    vector,  # [h], or [r h]
    lengths,  # [r]
    weights,  # [r n m] float32, written
    context,  # [s r n dv], written
    tops,  # [s r n], written if there are several splits: the largest score of a split
    totals,  # [s r n]: the sum of its exponentials
    n, m, h, dv,
    chunk,  # keys per split
    inverse,  # 1 / temperature
    query_row, query_step, key_row, key_step, value_row, value_step, vector_row, weight_row, weight_step, context_split,
    context_row, context_step,
    LENGTHS: tl.constexpr, SPLIT: tl.constexpr,
    BN: tl.constexpr,  # queries: 1 or 16
    BK: tl.constexpr,  # keys per block of the scores
    BM: tl.constexpr,  # keys per block of the sum
    BH: tl.constexpr,  # the part of h that a warp reads at once: no two warps share a key
    BLOCKS: tl.constexpr,  # blocks of h: 1 or 2 stay in registers for all queries; 0: more, which do not
    BS: tl.constexpr,  # weights per block of the softmax
    SHORT: tl.constexpr,  # one such block holds all keys
    BV: tl.constexpr,
):  # fmt: skip
    """Compute the scores of all keys, their softmax, and the sum of values, in turn; the weights are in memory."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1).to(tl.int64)
    count = m
    if LENGTHS:
        count = tl.minimum(tl.load(lengths + row).to(tl.int32), m)
    begin = tl.program_id(1) * chunk
    stop = tl.minimum(begin + chunk, m)
    end = tl.minimum(stop, count)
    query += row * query_row
    keys += row * key_row
    values += row * value_row
    vector += row * vector_row
    weights += row * weight_row
    context += split * context_split + row * context_row

    # Query and vector are loaded as tiles of equal rows: each thread then holds the numbers that match its key's.
    flat = tl.zeros([BK, 1], tl.int32)
    near = tl.arange(0, BH)[None, :]
    far = near + BH
    if BLOCKS > 0:
        v = tl.load(vector + flat + near, mask=(flat + near) < h, other=0.0).to(tl.float32) * inverse
    if BLOCKS == 2:
        v2 = tl.load(vector + flat + far, mask=(flat + far) < h, other=0.0).to(tl.float32) * inverse
    for first in range(begin, end, BK):
        j = first + tl.arange(0, BK)
        real = j < end
        line = keys + j[:, None] * key_step
        if BLOCKS > 0:
            k = tl.load(line + near, mask=real[:, None] & (near < h), other=0.0).to(tl.float32)
        if BLOCKS == 2:
            k2 = tl.load(line + far, mask=real[:, None] & (far < h), other=0.0).to(tl.float32)
        for i in range(n):
            query_at = query + i * query_step + flat
            if BLOCKS > 0:
                q = tl.load(query_at + near, mask=(flat + near) < h, other=0.0).to(tl.float32)
                summed = v * tanh(q + k)
                if BLOCKS == 2:
                    q2 = tl.load(query_at + far, mask=(flat + far) < h, other=0.0).to(tl.float32)
                    summed += v2 * tanh(q2 + k2)
            else:
                summed = tl.zeros([BK, BH], tl.float32)
                for start in range(0, h, BH):
                    x = start + near
                    part = tl.load(vector + flat + x, mask=(flat + x) < h, other=0.0).to(tl.float32) * inverse
                    key = tl.load(line + x, mask=real[:, None] & (x < h), other=0.0).to(tl.float32)
                    q = tl.load(query_at + x, mask=(flat + x) < h, other=0.0).to(tl.float32)
                    summed += part * tanh(q + key)
            tl.store(weights + i * weight_step + j, tl.sum(summed, 1), mask=real)
    tl.debug_barrier()

    # the softmax, in place
    i = tl.arange(0, BN)
    there = i < n
    lines = weights + i[:, None] * weight_step
    if SHORT:
        all = begin + tl.arange(0, BS)
        score = tl.load(lines + all[None, :], mask=there[:, None] & (all < end)[None, :], other=float("-inf"))
        top = tl.max(score, 1)
        softmax = tl.exp(score - tl.where(top == float("-inf"), 0.0, top)[:, None])
        total = tl.sum(softmax, 1)
        softmax = softmax / tl.where(total == 0, 1.0, total)[:, None]
        tl.debug_barrier()  # before scores are overwritten
        tl.store(lines + all[None, :], softmax, mask=there[:, None] & (all < stop)[None, :])
    else:
        highest = tl.full([BN, BS], float("-inf"), tl.float32)
        for first in range(begin, end, BS):
            j = first + tl.arange(0, BS)
            score = tl.load(lines + j[None, :], mask=there[:, None] & (j < end)[None, :], other=float("-inf"))
            highest = tl.maximum(highest, score)
        top = tl.max(highest, 1)
        shift = tl.where(top == float("-inf"), 0.0, top)
        exponentials = tl.zeros([BN, BS], tl.float32)
        for first in range(begin, end, BS):
            j = first + tl.arange(0, BS)
            score = tl.load(lines + j[None, :], mask=there[:, None] & (j < end)[None, :], other=float("-inf"))
            exponentials += tl.exp(score - shift[:, None])
        total = tl.sum(exponentials, 1)
        share = 1 / tl.where(total == 0, 1.0, total)
        tl.debug_barrier()
        for first in range(begin, stop, BS):
            j = first + tl.arange(0, BS)
            score = tl.load(lines + j[None, :], mask=there[:, None] & (j < end)[None, :], other=float("-inf"))
            weight = tl.exp(score - shift[:, None]) * share[:, None]
            tl.store(lines + j[None, :], weight, mask=there[:, None] & (j < stop)[None, :])
    if SPLIT:
        own = (split * tl.num_programs(0) + row) * n + i
        tl.store(tops + own, top, mask=there)
        tl.store(totals + own, total, mask=there)
    tl.debug_barrier()

    for start in range(0, dv, BV):
        x = start + tl.arange(0, BV)
        some = x < dv
        if BN == 1:
            only = tl.zeros([BV], tl.float32)
            for first in range(begin, end, BM):
                j = first + tl.arange(0, BM)
                real = j < end
                weight = tl.load(weights + j, mask=real, other=0.0)
                value = tl.load(
                    values + j[:, None] * value_step + x[None, :], mask=real[:, None] & some[None, :], other=0.0
                )
                only += tl.sum(weight[:, None] * value.to(tl.float32), 0)
            tl.store(context + x, only.to(context.dtype.element_ty), mask=some)
        else:
            summed = tl.zeros([BN, BV], tl.float32)
            for first in range(begin, end, BM):
                j = first + tl.arange(0, BM)
                real = j < end
                weight = tl.load(
                    weights + i[:, None] * weight_step + j[None, :], mask=there[:, None] & real[None, :], other=0.0
                )
                value = tl.load(
                    values + j[:, None] * value_step + x[None, :], mask=real[:, None] & some[None, :], other=0.0
                )
                if value.dtype == tl.float32 or INTERPRETED:
                    summed = tl.dot(weight, value.to(tl.float32), summed, input_precision="tf32x3")
                else:  # a sum of two half-precision numbers is as accurate as a float32 weight
                    coarse = weight.to(value.dtype)
                    fine = (weight - coarse.to(tl.float32)).to(value.dtype)
                    summed = tl.dot(coarse, value, summed)
                    summed = tl.dot(fine, value, summed)
            place = context + i[:, None] * context_step + x[None, :]
            tl.store(place, summed.to(context.dtype.element_ty), mask=there[:, None] & some[None, :])


@triton.jit(do_not_specialize=["m", "chunk", "splits", "weight_row", "weight_step"])
@no_type_check
def combine_kernel(
    parts,  # [s r n dv] float32
    tops,  # [s r n]
    totals,
    weights,  # [r n m], normalised within each split; overwritten by the row's weights
    context,  # [r n dv], written
    n, m, dv, chunk, splits, part_split, part_row, part_step, weight_row, weight_step, context_row, context_step,
    BSPLIT: tl.constexpr, BS: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Combine the splits of a row, weighted by their share of the exponentials; one program per row and query."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1)
    stride = tl.num_programs(0) * n
    s = tl.arange(0, BSPLIT)
    each = row * n + i + s.to(tl.int64) * stride
    top = tl.load(tops + each, mask=s < splits, other=float("-inf"))
    highest = tl.max(top, 0)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    share = tl.load(totals + each, mask=s < splits, other=0.0) * tl.exp(top - highest)
    whole = tl.sum(share, 0)
    whole = tl.where(whole == 0, 1.0, whole)
    share /= whole
    parts += row * part_row + i * part_step
    for start in range(0, dv, BV):
        x = start + tl.arange(0, BV)
        some = x < dv
        part = tl.load(
            parts + s.to(tl.int64)[:, None] * part_split + x[None, :],
            mask=(s < splits)[:, None] & some[None, :],
            other=0.0,
        )
        summed = tl.sum(share[:, None] * part, 0)
        tl.store(context + row * context_row + i * context_step + x, summed.to(context.dtype.element_ty), mask=some)
    for first in range(0, m, BS):
        j = first + tl.arange(0, BS)
        mine = row * n + i + (j // chunk).to(tl.int64) * stride
        own = tl.load(totals + mine, mask=j < m, other=0.0)
        own = own * tl.exp(tl.load(tops + mine, mask=j < m, other=float("-inf")) - highest) / whole
        place = weights + row * weight_row + i * weight_step + j
        tl.store(place, tl.load(place, mask=j < m, other=0.0) * own, mask=j < m)


# ---- gradients


@triton.jit(do_not_specialize=["m", "weight_row", "given_weight_row", "raw_row", "score_row"])
@no_type_check
def step_kernel(
    query,  # [r h]
    keys,  # [r m h]
    values,  # [r m dv]
    vector,  # [h]
    lengths,  # [r]
    weights,  # [r m] float32
    first_part,  # [r dv]: a part of the context's gradient
    second_part,  # [r dv]: the other part
    given_weights,  # [r m]: the weights' own gradient
    raw,  # [r m] float32: scratch space for the gradient of the weights
    d_context,  # [r dv], written: the sum of both parts
    d_scores,  # [r m] float32, written
    d_query,  # [r h], written
    m, h, dv, query_row, key_row, key_step, value_row, value_step, weight_row, first_row, second_row, given_weight_row,
    raw_row, context_row, score_row, d_query_row,
    SECOND: tl.constexpr, GIVEN: tl.constexpr, BM: tl.constexpr, BV: tl.constexpr, BK: tl.constexpr, BH: tl.constexpr,
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

    flat = tl.zeros([BM, 1], tl.int32)  # equal rows, so that threads exchange no part of the gradient
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
            t = tanh(q[None, :] + k.to(tl.float32))
            slope += de[:, None] * (1 - t * t)
        dq = tl.sum(slope, 0) * tl.load(vector + x, mask=some, other=0.0).to(tl.float32)
        tl.store(d_query + row * d_query_row + x, dq.to(d_query.dtype.element_ty), mask=some)
    for first in range(0, m, BM):
        j = first + tl.arange(0, BM)
        real = j < end
        de = tl.load(weights + j, mask=real, other=0.0) * (tl.load(raw + j, mask=real, other=0.0) - delta)
        tl.store(d_scores + j, de, mask=j < m)


TILES = 8, 8, 2  # keys per block of the values and of the scores, and warps, as measured on an H200


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
    """Compute the gradients of one query per row from those of its context, in one or two parts, and of its weights.

    `raw` is scratch space. All tensors have unit stride in their last dimension.
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
        num_warps=warps,
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
    BM: tl.constexpr, BH: tl.constexpr,
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
                t = tanh(q[None, :] + k)
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
            BM=16 if m <= 16 else 32, BH=wide, num_warps=4,
        )  # fmt: skip
    return d_keys, shares.sum(0)
