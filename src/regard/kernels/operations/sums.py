"""Sums of a matrix's columns, as a bias's gradient is: in two stages, in the same order each time.

Each program of the first stage walks its share of the rows and keeps a row of sums in registers; the second adds these
rows. There are no atomics, so two runs agree to the last bit. Needs Triton.
"""

# t rows · c columns · s shares, one per program of the first stage
from functools import cache
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor


def column_sums(x: Float[Tensor, "t c"]) -> Float[Tensor, " c"]:
    """Compute x.sum(0) in float32."""
    rows, width = x.shape
    x = x if x.stride(1) == 1 or width == 1 else x.contiguous()
    across, blocks, shares = share_rows(rows, width, processors(x.device))
    partial = x.new_empty((shares, width), dtype=torch.float32)
    add[(shares, blocks)](x, partial, rows, x.stride(0), width, DOWN=32, ACROSS=across, num_warps=4)
    return total(partial)


def share_rows(rows: int, width: int, count: int) -> tuple[int, int, int]:
    """Choose the columns of a block, the number of blocks, and how many shares of the rows fill so many processors."""
    across = min(256, max(16, triton.next_power_of_2(width)))
    blocks = triton.cdiv(width, across)
    return across, blocks, max(1, min(triton.cdiv(rows, 32), 4 * count // blocks))


def total(partial: Float[Tensor, "s *c"]) -> Float[Tensor, "*c"]:
    """Sum a few rows in float32, contiguous: the second stage alone."""
    rows, *shape = partial.shape
    if rows == 1:
        return partial[0]
    result = partial.new_empty(shape)
    width = result.numel()
    add[(1, triton.cdiv(width, 16))](partial, result, rows, width, width, DOWN=256, ACROSS=16, num_warps=8)
    return result


@cache
def processors(device: torch.device) -> int:
    """Count a device's multiprocessors; a few where kernels are interpreted."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


@triton.jit(do_not_specialize=["rows"])
@no_type_check
def add(x, result, rows, stride, width, DOWN: tl.constexpr, ACROSS: tl.constexpr):
    """result[i] = the sum of rows i, i + shares, … in tiles of DOWN; one program a share and a block of columns."""
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
