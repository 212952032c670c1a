"""Bilinear softmax attention of a decoding step: one query per row over its cache, or a few over a sentence's memory.

Both are bound by reading keys and values, once each. `follow` also writes the step's own key and value: row r's key of
position t is stored in row line[r, t] of the cache, so that only this table changes when a beam is reordered.
"""

# s sentences · r rows · a heads · n queries · m keys · t positions · d width
import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.operations.dot import to_four_dimensions
from regard.kernels.reference import Call

BLOCK = 32  # keys per iteration
# A program has one or two warps: with many rows and heads, enough loads are in flight, and a sum within a warp needs no
# shared memory.


def attend(call: Call) -> Tensor:
    """Attend from a few queries to keys of which the first `lengths` exist; a query without keys gets zeros."""
    batch = call.batch
    query, keys, values = (
        with_unit_stride(to_four_dimensions(tensor.expand(*batch, *tensor.shape[-2:])))
        for tensor in (call.query, call.keys, call.values)
    )
    first, second, n, d = query.shape
    m, dv = keys.shape[2], values.shape[3]
    strides: tuple[int, ...] = (0, 0)
    lengths = call.query  # a placeholder, never read
    if call.limits.lengths is not None:
        lengths = call.limits.lengths.expand(batch)
        lengths = lengths.reshape(first, second) if lengths.ndim != 2 else lengths
        strides = lengths.stride()
    # [s n a d] in memory: heads are adjacent, for the output projection
    out = torch.empty(first, n, second, dv, dtype=query.dtype, device=query.device).transpose(1, 2)
    if query.numel() and values.numel():
        scale = call.scale / call.temperature / math.log(2)
        options: dict[str, Any] = {
            "LIMITED": call.limits.lengths is not None,
            "D": d,
            "DV": dv,
            "BLOCK": BLOCK,
        }
        tensors = (query, keys, values, out, lengths)
        sizes = (scale, second, n, m, *query.stride()[:3], *keys.stride()[:3], *values.stride()[:3])
        sizes = (*sizes, *out.stride()[:3], *strides)
        if n == 1:
            one_kernel[(first * second,)](*tensors, *sizes, **options, num_warps=1)
        else:
            # A tensor core's product has at least 16 rows, whatever n is.
            options |= {"QUERIES": 16, "EXACT": query.dtype == torch.float32}
            options |= {"WIDTH": max(16, triton.next_power_of_2(d)), "VALUES": max(16, triton.next_power_of_2(dv))}
            some_kernel[(first * second,)](*tensors, *sizes, **options, num_warps=2)
    elif out.numel():
        out.zero_()
    return out.reshape(*batch, n, dv)


def with_unit_stride(x: Tensor) -> Tensor:
    """Return x with unit stride within vectors."""
    return x if x.stride(-1) == 1 else x.contiguous()


@triton.jit
def merge_block(q, k, v, there, most, total, context):
    """Merge a block of keys into a query's running softmax: its highest score, its sum, and the sum of values."""
    score = tl.where(there, tl.sum(k.to(tl.float32) * q[None, :], 1), -float("inf"))
    higher = tl.maximum(most, tl.max(score, 0))
    weight = tl.exp2(score - higher)
    fade = tl.exp2(most - higher)
    context = context * fade + tl.sum(weight[:, None] * v.to(tl.float32), 0)
    return higher, total * fade + tl.sum(weight, 0), context


@triton.jit
def one_kernel(
    query, keys, values, out, lengths, scale, heads, n, m, q0, q1, q2, k0, k1, k2, v0, v1, v2, o0, o1, o2, l0, l1,
    LIMITED: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Attend from one query per row; the products are sums along a vector."""
    first = (tl.program_id(0) // heads).to(tl.int64)
    second = tl.program_id(0) % heads
    i, j = tl.arange(0, triton.next_power_of_2(D)), tl.arange(0, triton.next_power_of_2(DV))
    end = m
    if LIMITED:
        end = tl.minimum(m, tl.load(lengths + first * l0 + second * l1).to(tl.int32))
    q = tl.load(query + first * q0 + second * q1 + i, mask=i < D, other=0.0).to(tl.float32) * scale
    keys += first * k0 + second * k1
    values += first * v0 + second * v1
    most, total = -float("inf"), 0.0
    context = tl.zeros((triton.next_power_of_2(DV),), tl.float32)
    for begin in range(0, end, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        there = at < end
        k = tl.load(keys + at[:, None] * k2 + i[None, :], mask=there[:, None] & (i[None, :] < D), other=0.0)
        v = tl.load(values + at[:, None] * v2 + j[None, :], mask=there[:, None] & (j[None, :] < DV), other=0.0)
        most, total, context = merge_block(q, k, v, there, most, total, context)
    context = context / tl.where(total > 0, total, 1.0)
    tl.store(out + first * o0 + second * o1 + j, context.to(out.dtype.element_ty), mask=j < DV)


@triton.jit
def some_kernel(
    query, keys, values, out, lengths, scale, heads, n, m, q0, q1, q2, k0, k1, k2, v0, v1, v2, o0, o1, o2, l0, l1,
    LIMITED: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BLOCK: tl.constexpr, QUERIES: tl.constexpr,
    EXACT: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Attend from up to sixteen queries per row, with products on tensor cores."""
    first = (tl.program_id(0) // heads).to(tl.int64)
    second = tl.program_id(0) % heads
    i, j = tl.arange(0, WIDTH), tl.arange(0, VALUES)
    r = tl.arange(0, QUERIES)
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    end = m
    if LIMITED:
        end = tl.minimum(m, tl.load(lengths + first * l0 + second * l1).to(tl.int32))
    mine = (r[:, None] < n) & (i[None, :] < D)
    q = tl.load(query + first * q0 + second * q1 + r[:, None] * q2 + i[None, :], mask=mine, other=0.0)
    keys += first * k0 + second * k1
    values += first * v0 + second * v1
    most = tl.full((QUERIES,), -float("inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    context = tl.zeros((QUERIES, VALUES), tl.float32)
    for begin in range(0, end, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        there = at < end
        k = tl.load(keys + at[None, :] * k2 + i[:, None], mask=there[None, :] & (i[:, None] < D), other=0.0)
        v = tl.load(values + at[:, None] * v2 + j[None, :], mask=there[:, None] & (j[None, :] < DV), other=0.0)
        score = tl.dot(q, k, input_precision=precision) * scale
        score = tl.where(there[None, :], score, -float("inf"))
        higher = tl.maximum(most, tl.max(score, 1))
        weight = tl.exp2(score - higher[:, None])
        fade = tl.exp2(most - higher)
        context = context * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=precision)
        total = total * fade + tl.sum(weight, 1)
        most = higher
    context = context / tl.where(total > 0, total, 1.0)[:, None]
    place = out + first * o0 + second * o1 + r[:, None] * o2 + j[None, :]
    tl.store(place, context.to(out.dtype.element_ty), mask=(r[:, None] < n) & (j[None, :] < DV))


def follow(
    query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, line: Tensor, length: Tensor, scale: float
) -> Tensor:
    """Append one position's keys and values [r a 1 d] to the caches [r a t d] at `length` [r], and attend to all.

    A row whose cache is full overwrites its last position. The caller increments `length`.
    """
    query, key, value = (with_unit_stride(x) for x in (query, key, value))
    (rows, heads, _, d), dv, size = query.shape, value.shape[-1], keys.shape[-2]
    out = torch.empty(rows, 1, heads, dv, dtype=query.dtype, device=query.device).transpose(1, 2)
    if out.numel():
        follow_kernel[(rows * heads,)](
            query, key, value, keys, values, line, length, out, scale / math.log(2), heads, size,
            *query.stride()[:2], *key.stride()[:2], *value.stride()[:2],
            D=d, DV=dv, BLOCK=BLOCK, num_warps=1,
        )  # fmt: skip
    return out


@triton.jit
def follow_kernel(
    query, key, value, keys, values, line, length, out, scale, heads, size, q0, q1, k0, k1, v0, v1,
    D: tl.constexpr, DV: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) // heads).to(tl.int64)
    head = tl.program_id(0) % heads
    i, j = tl.arange(0, triton.next_power_of_2(D)), tl.arange(0, triton.next_power_of_2(DV))
    end = tl.minimum(tl.load(length + row).to(tl.int32), size - 1)
    q = tl.load(query + row * q0 + head * q1 + i, mask=i < D, other=0.0).to(tl.float32) * scale
    own = tl.load(key + row * k0 + head * k1 + i, mask=i < D, other=0.0)
    new_value = tl.load(value + row * v0 + head * v1 + j, mask=j < DV, other=0.0)
    here = (row * heads + head) * size + end
    tl.store(keys + here * D + i, own, mask=i < D)
    tl.store(values + here * DV + j, new_value, mask=j < DV)
    if head == 0:
        tl.store(line + row * size + end, row.to(tl.int32))
    most, total = tl.sum(own.to(tl.float32) * q, 0), 1.0
    context = new_value.to(tl.float32)
    for begin in range(0, end, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        there = at < end
        lies = tl.load(line + row * size + at, mask=there, other=0).to(tl.int64)
        place = (lies * heads + head) * size + at
        k = tl.load(keys + place[:, None] * D + i[None, :], mask=there[:, None] & (i[None, :] < D), other=0.0)
        v = tl.load(values + place[:, None] * DV + j[None, :], mask=there[:, None] & (j[None, :] < DV), other=0.0)
        most, total, context = merge_block(q, k, v, there, most, total, context)
    tl.store(out + (row * heads + head) * DV + j, (context / total).to(out.dtype.element_ty), mask=j < DV)
