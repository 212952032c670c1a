"""Arithmetic that both directions of fused additive attention share: the fast tanh and the limits of a block.

tanh(q + k) = 1 - 2/x with x = 1 + e^{2q} e^{2k}: after the exponentials of queries and keys are taken once, an element
costs one multiply-add and its share of a reciprocal. Reciprocals are the dear part of a GPU, so several x are
multiplied and share one. Where that could overflow, a tile falls back.
"""

# i, n queries · j, m keys · d, h hidden
from typing import no_type_check

import triton
import triton.language as tl

from regard.kernels.triton import interpreted

BLOCK = 64  # queries and keys are padded to this
SAFE = tl.constexpr(86.0)  # e^86 < 2^125: its reciprocal is still a normal number
WIDEST = tl.constexpr(34.0)  # e^68, and 1e7 times that: what an exponential alone may be
INTERPRETED = tl.constexpr(interpreted())


@triton.jit
@no_type_check
def reciprocal(x):
    """Compute 1/x, right to the last bit or two."""
    if INTERPRETED:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
@no_type_check
def power(x):
    """Compute e^x; results below 2^-126 become zero."""
    if INTERPRETED:
        return tl.exp(x)
    else:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * 1.4426950408889634], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
@no_type_check
def tanh(x):
    """Approximate tanh in one instruction, right to 2^-11."""
    if INTERPRETED:
        return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * tl.minimum(x, 20.0)))
    else:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
@no_type_check
def product(a, b, total):
    """total + a b on tensor cores, of float32 in three products of tf32; the interpreter's NumPy knows no bfloat16."""
    if INTERPRETED:
        return total + tl.dot(a.to(tl.float32), b.to(tl.float32))
    else:
        return tl.dot(a, b, total, input_precision="tf32x3")


@triton.jit
@no_type_check
def halves(pair):
    """Split 64 bits into the two float32 they hold, so that one load serves for two."""
    low = (pair & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True)
    return low, (pair >> 32).to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def packed(low, high):
    """Pack two float32 into 64 bits: the reverse of `halves`."""
    wide = high.to(tl.uint32, bitcast=True).to(tl.uint64) << 32
    return (wide | low.to(tl.uint32, bitcast=True).to(tl.uint64)).to(tl.int64, bitcast=True)


@triton.jit
@no_type_check
def start_of(start, row, MODE: tl.constexpr):
    """Load where causality or a window starts: one number for all rows (1) or one per row (2)."""
    if MODE == 2:
        return tl.load(start + row).to(tl.int32)
    else:
        return start


@triton.jit
@no_type_check
def key_range(
    first, last, m, row, lengths, causal, centre, radius,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """The keys low … high - 1 outside of which none of the queries first … last may look."""
    low = 0
    high = m
    if LENGTHS:
        high = tl.minimum(high, tl.load(lengths + row).to(tl.int32))
    if CAUSAL > 0:
        high = tl.minimum(high, start_of(causal, row, CAUSAL) + last + 1)
    if WINDOW > 0:
        middle = start_of(centre, row, WINDOW)
        low = tl.maximum(low, middle + first - radius)
        high = tl.minimum(high, middle + last + radius + 1)
    return low, high


@triton.jit
@no_type_check
def query_range(
    first, last, n, row, lengths, causal, centre, radius,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """The queries low … high - 1 outside of which none looks at the keys first … last."""
    low = 0
    high = n
    if LENGTHS:
        high = tl.where(first < tl.load(lengths + row).to(tl.int32), high, 0)
    if CAUSAL > 0:
        low = tl.maximum(low, first - start_of(causal, row, CAUSAL))
    if WINDOW > 0:
        middle = start_of(centre, row, WINDOW)
        low = tl.maximum(low, first - middle - radius)
        high = tl.minimum(high, last - middle + radius + 1)
    return low, high


@triton.jit
@no_type_check
def visible(
    i, j, n, m, row, lengths, causal, centre, radius, mask, mask_outer, mask_inner, mask_i, mask_j, inner,
    LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Return whether query i may look at key j; i and j broadcast."""
    in_span = (i < n) & (j < m)
    if LENGTHS:
        in_span = in_span & (j < tl.load(lengths + row).to(tl.int32))
    if CAUSAL > 0:
        in_span = in_span & (j <= start_of(causal, row, CAUSAL) + i)
    if WINDOW > 0:
        distance = j - i - start_of(centre, row, WINDOW)
        in_span = in_span & (distance <= radius) & (distance >= -radius)
    if MASK:
        at = mask + (row // inner) * mask_outer + (row % inner) * mask_inner
        in_span = in_span & (
            tl.load(at + i.to(tl.int64) * mask_i + j.to(tl.int64) * mask_j, mask=in_span, other=0) != 0
        )
    return in_span
