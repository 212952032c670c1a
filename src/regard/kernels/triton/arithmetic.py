"""Functions that kernels share: approximate special functions, matrix products, and sums of rows and columns.

A GPU's special-function unit dominates the time of attention with tanh, so each approximation here is one instruction
of that unit, accurate enough for its uses. `.ftz` flushes numbers below 2^-126 to zero: without it the assembler adds
several instructions for them. The interpreter does not support inline assembly, and uses its own functions.

Column sums are a bias's gradient; sums of the rows that share an index are an embedding's gradient.

Columns are summed in two stages: each program of the first walks its share of the rows and keeps a row of sums in
registers; the second adds these rows.

For sums of rows by index, the indices are sorted. A program takes 32 positions of that order and adds the rows of each
index among them by one product with a matrix of zeros and ones, so that all rows are loaded at once. If an index
continues in the next tile, its partial sums are stored separately, and a second kernel adds them.

The order of additions is fixed, without atomics: two runs agree to the last bit. Needs Triton.
"""

# t rows · c columns · s shares, one per program of the first stage · v indices
import os
from functools import cache
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")  # on a CPU: slow, for tests


@triton.jit
@no_type_check
def reciprocal(x):
    """Compute 1/x, accurate to the last bit or two."""
    if INTERPRETED:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
@no_type_check
def exp2(x):
    """Compute 2^x; results below 2^-126 become zero."""
    if INTERPRETED:
        return tl.exp2(x)
    else:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
@no_type_check
def power(x):
    """Compute e^x; results below 2^-126 become zero."""
    if INTERPRETED:
        return tl.exp(x)
    else:
        return exp2(x * 1.4426950408889634)


@triton.jit
@no_type_check
def tanh(x):
    """Approximate tanh in one instruction, accurate to 2^-11; a sum of many is accurate to 2e-5."""
    if INTERPRETED:
        return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * tl.minimum(x, 20.0)))
    else:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
@no_type_check
def product(a, b, total):
    """Return total + a b on tensor cores, in float32 as three tf32 products; the interpreter's NumPy lacks bfloat16."""
    if INTERPRETED:
        return total + tl.dot(a.to(tl.float32), b.to(tl.float32))
    else:
        return tl.dot(a, b, total, input_precision="tf32x3")


# ---- sums


def column_sums(x: Float[Tensor, "t c"]) -> Float[Tensor, " c"]:
    """Compute x.sum(0) in float32."""
    rows, width = x.shape
    x = x if x.stride(1) == 1 or width == 1 else x.contiguous()
    across, blocks, shares = share_rows(rows, width, processors(x.device))
    partial = x.new_empty((shares, width), dtype=torch.float32)
    add[(shares, blocks)](x, partial, rows, x.stride(0), width, DOWN=32, ACROSS=across, num_warps=4)
    return total(partial)


def share_rows(rows: int, width: int, count: int) -> tuple[int, int, int]:
    """Return the columns of a block, the number of blocks, and the number of shares of the rows that fills the GPU."""
    across = min(256, max(16, triton.next_power_of_2(width)))
    blocks = triton.cdiv(width, across)
    return across, blocks, max(1, min(triton.cdiv(rows, 32), 4 * count // blocks))


def total(partial: Float[Tensor, "s *c"]) -> Float[Tensor, "*c"]:
    """Sum a few contiguous rows in float32: the second stage alone."""
    rows, *shape = partial.shape
    if rows == 1:
        return partial[0]
    result = partial.new_empty(shape)
    width = result.numel()
    add[(1, triton.cdiv(width, 16))](partial, result, rows, width, width, DOWN=256, ACROSS=16, num_warps=8)
    return result


@cache
def processors(device: torch.device) -> int:
    """Return a device's number of multiprocessors; 1 if kernels are interpreted."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def add(x, result, rows, stride, width, DOWN: tl.constexpr, ACROSS: tl.constexpr):
    """Sum rows i, i + shares, … into result[i], in tiles of DOWN; one program per share and block of columns."""
    share, shares = tl.program_id(0), tl.num_programs(0)
    column = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    inside = column[None, :] < width
    sums = tl.zeros((DOWN, ACROSS), tl.float32)
    first = share * DOWN
    while first < rows:
        row = (first + tl.arange(0, DOWN)).to(tl.int64)[:, None]
        sums += tl.load(x + row * stride + column[None, :], mask=(row < rows) & inside, other=0.0).to(tl.float32)
        first += shares * DOWN
    tl.store(result + share.to(tl.int64) * width + column, tl.sum(sums, 0), mask=column < width)


TILE = tl.constexpr(32)
PARTS = tl.constexpr(16)  # tiles of one index that are added at once


def row_sums(
    x: Float[Tensor, "t c"], ids: Int[Tensor, " t"], count: int, factor: float = 1.0
) -> Float[Tensor, "{count} c"]:
    """Compute factor · zeros(count, c).index_add(0, ids, x) in float32; ignore indices outside 0 … count - 1."""
    rows, width = x.shape
    result = x.new_zeros((count, width), dtype=torch.float32)
    if not x.numel():
        return result
    x = x.contiguous()
    ordered, order = torch.sort(ids.to(torch.int32), stable=True)
    across = min(128, max(16, triton.next_power_of_2(width)))
    tiles = triton.cdiv(rows, 32)
    heads, tails = x.new_empty((2, tiles, width), dtype=torch.float32).unbind()
    grid = tiles, triton.cdiv(width, across)
    add_tiles[grid](x, ordered, order, result, heads, tails, rows, count, factor, width, across, num_warps=4)
    if tiles > 1:
        add_parts[grid](ordered, result, heads, tails, rows, count, width, across, num_warps=4)
    return result


@triton.jit(do_not_specialize=["rows", "count"], do_not_specialize_on_alignment=["heads", "tails"])
@no_type_check
def add_tiles(
    x, ordered, order, result, heads, tails, rows, count, factor,
    width: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    """Sum a tile's rows by index.

    Complete sums go to the result, those of an index from an earlier tile to heads, of one that continues to tails.
    """
    tile = tl.program_id(0)
    column = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    place = tile * TILE + tl.arange(0, TILE)
    real, inside = place < rows, (column < width)[None, :]
    index = tl.load(ordered + place, mask=real, other=-1)
    before = tl.load(ordered + place - 1, mask=real & (place > 0), other=-2)
    row = tl.load(order + place, mask=real, other=0).to(tl.int64)
    values = tl.load(x + row[:, None] * width + column[None, :], mask=real[:, None] & inside, other=0.0)
    opens = (index != before) | (place == tile * TILE)  # an index's first position in this tile, which stores its sum
    same = (index[:, None] == index[None, :]) & (opens & real)[:, None] & real[None, :]
    if INTERPRETED:  # the interpreter has no half-precision product
        values = values.to(tl.float32)
    sums = tl.dot(same.to(values.dtype), values, input_precision="ieee", out_dtype=tl.float32) * factor
    last = tl.minimum(rows, (tile + 1) * TILE)
    ending = tl.load(ordered + last - 1)
    on = tl.load(ordered + last, mask=last < rows, other=-3) == ending
    came = (place == tile * TILE) & (index == before)
    goes = opens & (index == ending) & on & (came == 0)
    valid = (index >= 0) & (index < count)
    target = result + index.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(target, sums, mask=(opens & real & valid & (came == 0) & (goes == 0))[:, None] & inside)
    nowhere = tl.zeros((TILE,), tl.int64)[:, None]
    aside = tile.to(tl.int64) * width + column[None, :] + nowhere
    tl.store(heads + aside, sums, mask=came[:, None] & inside)
    tl.store(tails + aside, sums, mask=(goes & real)[:, None] & inside)


@triton.jit(do_not_specialize=["rows", "count"], do_not_specialize_on_alignment=["heads", "tails"])
@no_type_check
def add_parts(ordered, result, heads, tails, rows, count, width: tl.constexpr, ACROSS: tl.constexpr):
    """Sum the parts of an index that begins in this tile and continues in the next: its tail, and the later heads."""
    tile = tl.program_id(0)
    column = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    start, following = tile * TILE, (tile + 1) * TILE
    index = tl.load(ordered + following - 1, mask=following < rows, other=-1)
    on = tl.load(ordered + following, mask=following < rows, other=-2) == index
    came = tl.load(ordered + start - 1, mask=(start > 0) & (start < rows), other=-2) == index
    if on & (came == 0) & (index >= 0) & (index < count):
        inside = (column < width)[None, :]
        sums = tl.load(tails + tile.to(tl.int64) * width + column, mask=column < width, other=0.0)
        # The condition loads the index again: Triton 3.6 cannot compile a flag carried around a loop.
        while tl.load(ordered + following, mask=following < rows, other=-1) == index:
            part = following // TILE + tl.arange(0, PARTS)
            mine = tl.load(ordered + part * TILE, mask=part * TILE < rows, other=-1) == index
            aside = part.to(tl.int64)[:, None] * width + column[None, :]
            sums += tl.sum(tl.load(heads + aside, mask=mine[:, None] & inside, other=0.0), 0)
            following += PARTS * TILE
        tl.store(result + index.to(tl.int64) * width + column, sums, mask=column < width)
