"""The residual in one kernel each way: forward keeps the sum, a mean and a deviation a row; the mask is drawn again.

A program walks over groups of eight rows, which share a draw of random words (see `dropout.py`), a whole
row in its registers. Backward it also keeps the sums for the gradients of bias and norm, which a second kernel adds in
a fixed order. Needs Triton.
"""

# d width · s shares, one per program
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.kernels.triton.dropout import draw_seed, is_kept, odds, words
from regard.kernels.triton.sums import processors, total

GROUP = tl.constexpr(8)
WARPS = 24  # of a multiprocessor that are busy backward: as many as their registers let in at once


class Residual(torch.autograd.Function):
    """The residual sum and its norm; either may go unused."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor | None]:
        """Run the forward pass on what `residual` is given: the sum has x's dtype, the norm the last of these."""
        x, y, bias, p, weight, shift, eps, seed, dtype = inputs
        if p > 0.0 and seed is None:
            seed = draw_seed(x.device)
        ctx.set_materialize_grads(False)
        x, y = x.contiguous(), y.contiguous()
        width = x.shape[-1]
        rows, (limit, scale) = x.numel() // max(1, width), odds(p)
        together = torch.empty_like(x)
        normed = mean = deviation = None
        if weight is not None:
            normed = torch.empty_like(x, dtype=dtype)
            mean, deviation = x.new_empty((2, rows), dtype=torch.float32).unbind()
        if x.numel():
            tile, warps = across(width, 8)
            forward[(triton.cdiv(rows, 8),)](
                x, y, bias, weight, shift, seed, together, normed, mean, deviation, rows, 1, limit, scale, eps,
                WIDTH=width, BLOCK=tile, BIAS=bias is not None, DROP=p > 0.0, NORM=weight is not None,
                SHIFT=shift is not None, num_warps=warps,
            )  # fmt: skip
        ctx.save_for_backward(bias, weight, shift, seed, mean, deviation, together if weight is not None else None)
        ctx.constants = p, y.dtype
        return together, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_sum: Tensor | None, d_normed: Tensor | None) -> tuple[Tensor | None, ...]:
        bias, weight, shift, seed, mean, deviation, together = ctx.saved_tensors
        (p, narrow), (limit, scale) = ctx.constants, odds(ctx.constants[0])
        if d_sum is None and d_normed is None:
            return (None,) * 9
        d_sum = None if d_sum is None else d_sum.contiguous()
        d_normed = None if d_normed is None else d_normed.contiguous()
        like = together if together is not None else d_sum
        assert like is not None
        alike = p == 0.0 and narrow == like.dtype  # then one tensor serves x and y
        needed = [
            bias is not None and ctx.needs_input_grad[2],
            d_normed is not None and weight is not None,
            d_normed is not None and shift is not None,
        ]
        width = like.shape[-1]
        rows = like.numel() // max(1, width)
        d_x = d_sum if d_normed is None else torch.empty_like(like)
        d_y = d_x if alike else torch.empty_like(like, dtype=narrow)
        tile, warps = across(width, 4)
        share, shares = share_rows(rows, warps, processors(like.device))
        partial = like.new_empty((shares, sum(needed), width), dtype=torch.float32)
        if d_normed is not None or not alike or needed[0]:
            backward[(shares,)](
                d_sum, d_normed, together, weight, mean, deviation, seed, d_x, d_y, partial, rows, share, limit, scale,
                WIDTH=width, BLOCK=tile, SUM=d_sum is not None, NORM=d_normed is not None, DROP=p > 0.0, ALIKE=alike,
                BIAS=needed[0], SHIFT=needed[2], SUMS=sum(needed), num_warps=warps,
            )  # fmt: skip
        sums = iter(total(partial).unbind() if any(needed) else ())
        d_bias, d_weight, d_shift = (
            next(sums).to(of.dtype) if ask else None for ask, of in zip(needed, (bias, weight, shift), strict=True)
        )
        return d_x, d_y, d_bias, None, d_weight, d_shift, None, None, None


def share_rows(rows: int, warps: int, count: int) -> tuple[int, int]:
    """Choose how many groups of eight rows a program of the backward pass walks, and how many programs fill the
    processors.
    """
    share = max(1, triton.cdiv(rows, 8 * max(1, WARPS // warps) * count))
    return share, max(1, triton.cdiv(rows, 8 * share))


def across(width: int, numbers: int) -> tuple[int, int]:
    """Choose the width of a row's registers, and how many warps share them, at so many numbers a thread."""
    tile = max(16, triton.next_power_of_2(width))
    return tile, min(16, max(1, tile // (32 * numbers)))


@triton.jit(do_not_specialize=["rows", "share", "limit"], do_not_specialize_on_alignment=["seed", "mean", "deviation"])
@no_type_check
def forward(
    x, y, bias, weight, shift, seed, together, normed, mean, deviation, rows, share, limit, scale, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr, NORM: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    """Walk `share` groups of rows, row by row; the next row loads while one is computed."""
    column = tl.arange(0, BLOCK)
    real = column < WIDTH
    row = tl.program_id(0) * share * GROUP
    end = tl.minimum(rows, row + share * GROUP)
    offset = row.to(tl.int64) * WIDTH + column
    next_x = tl.load(x + offset, mask=real & (row < end), other=0.0)
    next_y = tl.load(y + offset, mask=real & (row < end), other=0.0)
    if BIAS:
        biases = tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
    if NORM:
        weights = tl.load(weight + column, mask=real, other=0.0).to(tl.float32)
    if SHIFT:
        shifts = tl.load(shift + column, mask=real, other=0.0).to(tl.float32)
    while row < end:
        if DROP:
            first, second, third, fourth = words(seed, row // GROUP, column, WIDTH)
        for k in range(GROUP):
            value, added = next_x.to(tl.float32), next_y.to(tl.float32)
            here, following = real & (row < end), real & (row + 1 < end)
            offset = row.to(tl.int64) * WIDTH + column
            next_x = tl.load(x + offset + WIDTH, mask=following, other=0.0)
            next_y = tl.load(y + offset + WIDTH, mask=following, other=0.0)
            if BIAS:
                added += biases
            if DROP:
                added = tl.where(is_kept(first, second, third, fourth, k, limit), added * scale, 0.0)
            rounded = (value + added).to(together.dtype.element_ty)
            tl.store(together + offset, rounded, mask=here)
            if NORM:
                value = rounded.to(tl.float32)  # what the backward pass will read; outside of the columns it is zero
                centre = tl.sum(value, 0) / WIDTH
                value = tl.where(real, value - centre, 0.0)
                inverse = 1 / tl.sqrt(tl.sum(value * value, 0) / WIDTH + eps)
                tl.store(mean + row, centre, mask=row < end)
                tl.store(deviation + row, inverse, mask=row < end)
                value *= weights * inverse
                if SHIFT:
                    value += shifts
                tl.store(normed + offset, value.to(normed.dtype.element_ty), mask=here)
            row += 1


@triton.jit(do_not_specialize=["rows", "share", "limit"], do_not_specialize_on_alignment=["seed", "mean", "deviation"])
@no_type_check
def backward(
    d_sum, d_normed, together, weight, mean, deviation, seed, d_x, d_y, partial, rows, share, limit, scale,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr,
    ALIKE: tl.constexpr, BIAS: tl.constexpr, SHIFT: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Run the backward pass, with sums over the rows. Columns outside read zeros, which add nothing to a row's sums."""
    column = tl.arange(0, BLOCK)
    real = column < WIDTH
    row = tl.program_id(0) * share * GROUP
    end = tl.minimum(rows, row + share * GROUP)
    offset = row.to(tl.int64) * WIDTH + column
    for_bias = tl.zeros((BLOCK,), tl.float32)
    for_weight = tl.zeros((BLOCK,), tl.float32)
    for_shift = tl.zeros((BLOCK,), tl.float32)
    following = real & (row < end)
    if NORM:
        next_outer = tl.load(d_normed + offset, mask=following, other=0.0)
        next_value = tl.load(together + offset, mask=following, other=0.0)
        next_inverse = tl.load(deviation + row, mask=row < end, other=0.0)
        next_centre = tl.load(mean + row, mask=row < end, other=0.0)
        weights = tl.load(weight + column, mask=real, other=0.0).to(tl.float32)
    if SUM:
        next_slope = tl.load(d_sum + offset, mask=following, other=0.0)
    while row < end:
        if DROP:
            first, second, third, fourth = words(seed, row // GROUP, column, WIDTH)
        for k in range(GROUP):
            slope = tl.zeros((BLOCK,), tl.float32)
            here, following = real & (row < end), real & (row + 1 < end)
            offset = row.to(tl.int64) * WIDTH + column
            if NORM:
                outer, value = next_outer.to(tl.float32), next_value.to(tl.float32)
                inverse, centre = next_inverse, next_centre * next_inverse
                next_outer = tl.load(d_normed + offset + WIDTH, mask=following, other=0.0)
                next_value = tl.load(together + offset + WIDTH, mask=following, other=0.0)
                next_inverse = tl.load(deviation + row + 1, mask=row + 1 < end, other=0.0)
                next_centre = tl.load(mean + row + 1, mask=row + 1 < end, other=0.0)
            if SUM:
                slope = next_slope.to(tl.float32)
                next_slope = tl.load(d_sum + offset + WIDTH, mask=following, other=0.0)
            if NORM:
                unit = value * inverse - centre
                inner = outer * weights
                level = tl.sum(inner, 0) / WIDTH * inverse
                along = tl.sum(inner * unit, 0) / WIDTH * inverse
                slope += inner * inverse - (unit * along + level)
                for_weight += outer * unit
                for_shift += outer
                tl.store(d_x + offset, slope.to(d_x.dtype.element_ty), mask=here)
            if DROP:
                slope = tl.where(is_kept(first, second, third, fourth, k, limit), slope * scale, 0.0)
            if not ALIKE:
                tl.store(d_y + offset, slope.to(d_y.dtype.element_ty), mask=here)
            for_bias += slope
            row += 1
    start = partial + tl.program_id(0).to(tl.int64) * SUMS * WIDTH + column
    if BIAS:
        tl.store(start, for_bias, mask=real)
        start += WIDTH
    if NORM:
        tl.store(start, for_weight, mask=real)
        if SHIFT:
            tl.store(start + WIDTH, for_shift, mask=real)
