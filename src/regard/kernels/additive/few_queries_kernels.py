"""Triton kernels of `few_queries`: additive softmax attention of a few queries, a program a row, all in float32."""

# r rows · n queries · m keys · h hidden · dv value width · s splits of the keys
from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def tanh(x, INTERPRETED: tl.constexpr):
    """Approximate tanh by one operation of the special-function unit, to 5e-4; a sum of many is right to 2e-5."""
    if INTERPRETED:
        shrunk = tl.exp(-2 * tl.abs(x))
        size = (1 - shrunk) / (1 + shrunk)
        return tl.where(x < 0, -size, size)
    else:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit(do_not_specialize=["m", "chunk", "weight_row", "weight_step"])  # they change from batch to batch
@no_type_check
def look(
    query,  # [r n h]
    keys,  # [r m h]
    values,  # [r m dv]
    vector,  # [h], or [r h]
    lengths,  # [r]
    weights,  # [r n m] float32, written
    context,  # [s r n dv], written
    tops,  # [s r n], written where there are several splits: the largest score of a split
    totals,  # [s r n]: the sum of its exponentials
    n, m, h, dv,
    chunk,  # keys of a split
    inverse,  # of the temperature
    query_row, query_step, key_row, key_step, value_row, value_step, vector_row, weight_row, weight_step, context_split,
    context_row, context_step,
    LENGTHS: tl.constexpr, SPLIT: tl.constexpr,
    BN: tl.constexpr,  # 1, or 16: queries
    BK: tl.constexpr,  # keys of a block of the scores
    BM: tl.constexpr,  # of the sum
    BH: tl.constexpr,  # so much of h as a warp reads at once: no two of them share a key
    BLOCKS: tl.constexpr,  # of h: 1 or 2 stay in registers for all queries; 0: more, which do not
    BS: tl.constexpr,  # weights of a block of the softmax
    SHORT: tl.constexpr,  # one such block has all keys
    BV: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Compute the scores of all keys, their softmax, and the sum of values, in turn; the weights lie in memory."""
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

    # Query and vector are read as tiles with equal rows: a row's numbers then lie in the thread that has the key's.
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
                summed = v * tanh(q + k, INTERPRETED)
                if BLOCKS == 2:
                    q2 = tl.load(query_at + far, mask=(flat + far) < h, other=0.0).to(tl.float32)
                    summed += v2 * tanh(q2 + k2, INTERPRETED)
            else:
                summed = tl.zeros([BK, BH], tl.float32)
                for start in range(0, h, BH):
                    x = start + near
                    part = tl.load(vector + flat + x, mask=(flat + x) < h, other=0.0).to(tl.float32) * inverse
                    key = tl.load(line + x, mask=real[:, None] & (x < h), other=0.0).to(tl.float32)
                    q = tl.load(query_at + x, mask=(flat + x) < h, other=0.0).to(tl.float32)
                    summed += part * tanh(q + key, INTERPRETED)
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
        tl.debug_barrier()  # before anything is overwritten
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
                else:  # a weight as two numbers of half precision is as good as in single
                    coarse = weight.to(value.dtype)
                    fine = (weight - coarse.to(tl.float32)).to(value.dtype)
                    summed = tl.dot(coarse, value, summed)
                    summed = tl.dot(fine, value, summed)
            place = context + i[:, None] * context_step + x[None, :]
            tl.store(place, summed.to(context.dtype.element_ty), mask=there[:, None] & some[None, :])


@triton.jit(do_not_specialize=["m", "chunk", "splits", "weight_row", "weight_step"])
@no_type_check
def combine(
    parts,  # [s r n dv] float32
    tops,  # [s r n]
    totals,
    weights,  # [r n m], each split's own; made those of all
    context,  # [r n dv], written
    n, m, dv, chunk, splits, part_split, part_row, part_step, weight_row, weight_step, context_row, context_step,
    BSPLIT: tl.constexpr, BS: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Combine the splits of a row, weighed by their share of the exponentials. A program a row and query."""
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
