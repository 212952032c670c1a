"""Dropout on a GPU with a mask that is never stored: Philox draws it again in the backward pass.

The mask depends only on the seed and the position in [rows, width], not on the size of a tile. A seed is a tensor on
the device: there is no sync, and a captured CUDA graph draws another at each replay. The same pass also computes the
operations next to dropout: an activation, an embedding, or the residual and its norm.

Sixteen bits decide whether an element is kept, as on a CPU, so one Philox draw of four words serves eight elements:
those of one column in eight rows, which are in the registers of one thread. Seven rounds pass BigCrush (Salmon et al.
2011, table 2). Arithmetic is in float32. Needs Triton.

The residual is one kernel per direction: forward saves the sum, and a mean and an inverse deviation per row. A program
walks over groups of eight rows, which share a draw, with a full row in its registers. Backward also accumulates the
gradients of bias and norm per program, and a second kernel adds these sums in a fixed order.
"""

# t tokens, or rows · c width · v rows of an embedding · n positions · s shares, one per program
from typing import Any, Literal, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.kernels.triton.arithmetic import processors, row_sums, total

STEPS = 1 << 16  # number of values of sixteen bits
WARPS = 24  # warps per multiprocessor in the residual's backward pass: as many as its registers allow at once


def draw_seed(device: torch.device | str, count: int = 1) -> Int[Tensor, " {count}"]:
    """Draw seeds from torch's generator for that device, so that `torch.manual_seed` reproduces the masks.

    A step with many dropouts can draw all its seeds at once: `seeds[i : i + 1]` is one.
    """
    return torch.randint(0, 2**63 - 1, (count,), dtype=torch.int64, device=device)


def odds(p: float) -> tuple[int, float]:
    """Return the sixteen-bit number below which a draw drops, and the factor for kept elements."""
    limit = round(p * STEPS)
    return limit, STEPS / max(1, STEPS - limit)


def activation_dropout(
    x: Float[Tensor, "*b c"],
    bias: Float[Tensor, " c"] | None,
    p: float,
    seed: Int[Tensor, "1"] | None,
    name: Literal["relu", "gelu", "silu"],
) -> Float[Tensor, "*b c"]:
    """Compute dropout(f(x + bias)), with f of this name; GELU is exact.

    x is a linear layer's product without its bias, whose gradient needs no separate pass here. The backward pass needs
    only the result of a ReLU, and x for the others.
    """
    dropped: Tensor = ActivationDropout.apply(x, bias, p, seed, name)
    return dropped


def embed(
    ids: Int[Tensor, "*b"],
    weight: Float[Tensor, "v c"],
    scale: float,
    positions: Int[Tensor, "*b"],
    p: float,
    seed: Int[Tensor, "1"] | None,
    *,
    table: Float[Tensor, "n c"],
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "*b c"]:
    """Compute dropout(weight[ids] · scale + table[positions]), in `dtype` or the weight's; the table has no gradient.

    The weight's gradient has the weight's dtype, and adds the rows of a token in a fixed order.
    """
    embedded: Tensor = Embed.apply(ids, weight, scale, positions, p, seed, table, dtype or weight.dtype)
    return embedded


class ActivationDropout(torch.autograd.Function):
    """An activation and dropout as f(x + bias) ∘ keep / P(keep).

    For GELU and SiLU, backward recomputes the slope from the input, and the mask. For a ReLU the result determines
    both: the gradient passes only where it is positive.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, p: float, seed: Tensor | None, name: str) -> Tensor:
        x = x.contiguous()
        width, result = x.shape[-1], torch.empty_like(x)
        rows, (limit, scale) = x.numel() // max(1, width), odds(p)
        if x.numel():
            tile, warps = across(width)
            activation_forward[(triton.cdiv(rows, 8), triton.cdiv(width, tile))](
                x, bias, seed, result, rows, limit, scale, width, tile, bias is not None, p > 0.0, name, num_warps=warps
            )
        ctx.save_for_backward(result if name == "relu" else x, bias, seed)
        ctx.constants = p, name
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, bias, seed = ctx.saved_tensors
        p, name = ctx.constants
        grad, (limit, scale) = grad.contiguous(), odds(p)
        width, d_x = grad.shape[-1], torch.empty_like(x)
        rows = grad.numel() // max(1, width)
        add = bias is not None and ctx.needs_input_grad[1]
        tile, warps = across(width)
        blocks, groups = triton.cdiv(width, tile), triton.cdiv(rows, 8)
        shares = max(1, min(groups, 4 * processors(grad.device) // blocks))
        partial = grad.new_empty((shares, width), dtype=torch.float32) if add else None
        activation_backward[(shares, blocks)](
            grad, x, bias, seed, d_x, partial, rows, limit, scale, width, tile, bias is not None, p > 0.0, add, name,
            num_warps=warps,
        )  # fmt: skip
        return d_x, None if partial is None else total(partial).to(bias.dtype), None, None, None


class Embed(torch.autograd.Function):
    """An embedding with its position and dropout."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Run the forward pass on the arguments of `embed`."""
        ids, weight, scale, positions, p, seed, table, dtype = inputs
        ids, positions, width = ids.contiguous(), positions.contiguous(), weight.shape[1]
        result = weight.new_empty((*ids.shape, width), dtype=dtype)
        limit, kept_scale = odds(p)
        if result.numel():
            tile, warps = across(width)
            embed_forward[(triton.cdiv(ids.numel(), 8), triton.cdiv(width, tile))](
                ids, weight.contiguous(), positions, table.contiguous(), seed, result, ids.numel(), len(weight),
                len(table), scale, limit, kept_scale, width, tile, p > 0.0,
                num_warps=warps,
            )  # fmt: skip
        ctx.save_for_backward(ids, seed)
        ctx.constants = scale, p, len(weight), weight.dtype
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ids, seed = ctx.saved_tensors
        scale, p, count, dtype = ctx.constants
        _, kept_scale = odds(p)
        if p:
            grad = apply_mask(grad, p, seed, 1.0)
        sums = row_sums(grad.reshape(-1, grad.shape[-1]), ids.view(-1), count, scale * kept_scale)
        return None, sums.to(dtype), None, None, None, None, None, None


def apply_mask(x: Tensor, p: float, seed: Tensor | None, scale: float) -> Tensor:
    """Compute x ∘ keep · scale."""
    x = x.contiguous()
    result = torch.empty_like(x)
    if not x.numel():
        return result
    width = x.shape[-1] if x.ndim else 1
    rows, (limit, _) = x.numel() // width, odds(p)
    tile, warps = across(width)
    mask[(triton.cdiv(rows, 8), triton.cdiv(width, tile))](
        x, seed, result, rows, limit, scale, width, tile, num_warps=warps
    )
    return result


def across(width: int) -> tuple[int, int]:
    """Return the width of a tile of eight rows, and the number of its warps: each thread has eight columns."""
    tile = min(512, max(16, triton.next_power_of_2(width)))
    return tile, max(1, tile // 256)


# ---- kernels


GROUP = tl.constexpr(8)  # rows that share a draw
ROUNDS = tl.constexpr(7)


@triton.jit
@no_type_check
def words(seed, group, column, width):
    """Draw four random words per column, 128 bits used nowhere else, for a group of eight rows."""
    return tl.randint4x(tl.load(seed), group * width + column, n_rounds=ROUNDS)


@triton.jit
@no_type_check
def is_kept(first, second, third, fourth, k, limit):
    """Return whether the elements of row k of a group are kept, by the lower or the upper half of one of the words."""
    word = tl.where(k < 4, tl.where(k < 2, first, second), tl.where(k < 6, third, fourth))
    return ((word >> (k % 2) * 16) & 0xFFFF).to(tl.int32) >= limit


@triton.jit
@no_type_check
def stays(seed, group, k, column, width, limit):
    """Return whether the elements of a group's tile are kept."""
    first, second, third, fourth = words(seed, group, column, width)
    return is_kept(first[None, :], second[None, :], third[None, :], fourth[None, :], k, limit)


@triton.jit
@no_type_check
def place(group, rows, width, BLOCK: tl.constexpr):
    """Return a group's tile: rows within the group, columns, offsets, and whether they are inside."""
    k = tl.arange(0, GROUP)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = (group * GROUP + k).to(tl.int64)
    return k, column, row * width + column[None, :], (row < rows) & (column < width)[None, :]


@triton.jit(do_not_specialize=["rows", "limit"], do_not_specialize_on_alignment=["seed"])
@no_type_check
def mask(x, seed, result, rows, limit, scale, width: tl.constexpr, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    k, column, offset, inside = place(group, rows, width, BLOCK)
    value = tl.load(x + offset, mask=inside, other=0.0).to(tl.float32) * scale
    value = tl.where(stays(seed, group, k, column, width, limit), value, 0.0)
    tl.store(result + offset, value.to(result.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def smooth(value, NAME: tl.constexpr):
    """Return GELU's or SiLU's result and slope."""
    if NAME == "gelu":
        share = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
        slope = share + value * tl.exp(-0.5 * value * value) * 0.3989422804014327
    else:
        small = tl.exp(-tl.abs(value))  # never overflows
        share = tl.where(value >= 0.0, 1.0, small) / (1.0 + small)
        slope = share * (1.0 + value * (1.0 - share))
    return value * share, slope


@triton.jit(do_not_specialize=["rows", "limit"], do_not_specialize_on_alignment=["seed"])
@no_type_check
def activation_forward(
    x, bias, seed, result, rows, limit, scale,
    width: tl.constexpr, BLOCK: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr, NAME: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    k, column, offset, inside = place(group, rows, width, BLOCK)
    value = tl.load(x + offset, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    if NAME == "relu":
        value = tl.where(value <= 0.0, 0.0, value)  # NaN stays NaN
    else:
        value, _ = smooth(value, NAME)
    if DROP:
        value = tl.where(stays(seed, group, k, column, width, limit), value * scale, 0.0)
    tl.store(result + offset, value.to(result.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "limit"], do_not_specialize_on_alignment=["seed"])
@no_type_check
def activation_backward(
    grad, x, bias, seed, d_x, partial, rows, limit, scale,
    width: tl.constexpr, BLOCK: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr, ADD: tl.constexpr,
    NAME: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of an activation and dropout; each program walks groups of rows and sums its columns.

    `x` is the input, or a ReLU's result.
    """
    share, shares = tl.program_id(0), tl.num_programs(0)
    groups = tl.cdiv(rows, GROUP)
    sums = tl.zeros((BLOCK,), tl.float32)
    group = share
    while group < groups:
        k, column, offset, inside = place(group, rows, width, BLOCK)
        if NAME == "relu":
            passed = tl.load(grad + offset, mask=inside, other=0.0).to(tl.float32) * scale
            closed = tl.load(x + offset, mask=inside, other=0.0).to(tl.float32) <= 0.0
            passed = tl.where(closed, 0.0, passed)
        else:
            value = tl.load(x + offset, mask=inside, other=0.0).to(tl.float32)
            if BIAS:
                value += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
            _, slope = smooth(value, NAME)
            passed = tl.load(grad + offset, mask=inside, other=0.0).to(tl.float32) * slope
            if DROP:
                passed = tl.where(stays(seed, group, k, column, width, limit), passed * scale, 0.0)
        tl.store(d_x + offset, passed.to(d_x.dtype.element_ty), mask=inside)
        if ADD:
            sums += tl.sum(passed, 0)
        group += shares
    if ADD:
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        tl.store(partial + share.to(tl.int64) * width + column, sums, mask=column < width)


@triton.jit(do_not_specialize=["rows", "tokens", "position_count", "limit"], do_not_specialize_on_alignment=["seed"])
@no_type_check
def embed_forward(
    ids, weight, positions, table, seed, result, rows, tokens, position_count, factor, limit, scale,
    width: tl.constexpr, BLOCK: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Look up embeddings and positions; a token or a position outside its table gives NaN."""
    group = tl.program_id(0)
    k, column, offset, inside = place(group, rows, width, BLOCK)
    row = group.to(tl.int64) * GROUP + k
    token = tl.load(ids + row, mask=row < rows, other=0).to(tl.int64)
    position = tl.load(positions + row, mask=row < rows, other=0).to(tl.int64)
    in_tables = inside & (token >= 0) & (token < tokens) & (position >= 0) & (position < position_count)
    nothing = float("nan")
    value = tl.load(weight + token * width + column[None, :], mask=in_tables, other=nothing).to(tl.float32) * factor
    value += tl.load(table + position * width + column[None, :], mask=in_tables, other=nothing).to(tl.float32)
    if DROP:
        value = tl.where(stays(seed, group, k, column, width, limit), value * scale, 0.0)
    tl.store(result + offset, value.to(result.dtype.element_ty), mask=inside)


# ---- the residual


class Residual(torch.autograd.Function):
    """The residual sum and its norm; either may be unused."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor | None]:
        """Run the forward pass on the arguments of `residual`; the sum has x's dtype, the norm has `dtype`."""
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
            tile, warps = across_row(width, 8)
            residual_forward[(triton.cdiv(rows, 8),)](
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
        alike = p == 0.0 and narrow == like.dtype  # one tensor then serves x and y
        needed = [
            bias is not None and ctx.needs_input_grad[2],
            d_normed is not None and weight is not None,
            d_normed is not None and shift is not None,
        ]
        width = like.shape[-1]
        rows = like.numel() // max(1, width)
        d_x = d_sum if d_normed is None else torch.empty_like(like)
        d_y = d_x if alike else torch.empty_like(like, dtype=narrow)
        tile, warps = across_row(width, 4)
        share, shares = share_rows(rows, warps, processors(like.device))
        partial = like.new_empty((shares, sum(needed), width), dtype=torch.float32)
        if d_normed is not None or not alike or needed[0]:
            residual_backward[(shares,)](
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
    """Return how many groups of eight rows a program of the backward pass walks, and how many programs run."""
    share = max(1, triton.cdiv(rows, 8 * max(1, WARPS // warps) * count))
    return share, max(1, triton.cdiv(rows, 8 * share))


def across_row(width: int, numbers: int) -> tuple[int, int]:
    """Return a row's width in registers, and the number of its warps, at `numbers` elements per thread."""
    tile = max(16, triton.next_power_of_2(width))
    return tile, min(16, max(1, tile // (32 * numbers)))


@triton.jit(do_not_specialize=["rows", "share", "limit"], do_not_specialize_on_alignment=["seed", "mean", "deviation"])
@no_type_check
def residual_forward(
    x, y, bias, weight, shift, seed, together, normed, mean, deviation, rows, share, limit, scale, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr, NORM: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    """Walk `share` groups of rows, row by row; the next row is loaded while one is computed."""
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
                value = rounded.to(tl.float32)  # as the backward pass reads it; zero outside the columns
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
def residual_backward(
    d_sum, d_normed, together, weight, mean, deviation, seed, d_x, d_y, partial, rows, share, limit, scale,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr,
    ALIKE: tl.constexpr, BIAS: tl.constexpr, SHIFT: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Run the backward pass, with sums over the rows. Columns outside are zero and add nothing to a row's sums."""
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
