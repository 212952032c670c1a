"""Dropout on a GPU whose mask is never stored: Philox draws it again in the backward pass.

The mask depends only on the seed and the place in [rows, width], not on the size of a tile. A seed is a tensor on the
device: nobody waits for it, and a captured CUDA graph draws another at each replay. `triton_kernels` has what is
computed. Needs Triton.
"""

# t tokens, or rows · c width · v rows of an embedding · n positions
from typing import Any

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.kernels.operations.dropout.cpu import STEPS
from regard.kernels.operations.dropout.triton_kernels import (
    embed_forward,
    mask,
    relu_backward,
    relu_forward,
    smooth_backward,
    smooth_forward,
)
from regard.kernels.operations.linear.column_sums import processors, total
from regard.kernels.operations.linear.row_sums import row_sums


def draw_seed(device: torch.device | str, count: int = 1) -> Int[Tensor, " {count}"]:
    """Draw seeds from torch's generator for that device, so that `torch.manual_seed` repeats what is dropped.

    A step that drops in many places can draw all its seeds at once: `seeds[i : i + 1]` is one.
    """
    return torch.randint(0, 2**63 - 1, (count,), dtype=torch.int64, device=device)


def odds(p: float) -> tuple[int, float]:
    """Return the sixteen-bit number below which a draw drops, and the factor for the numbers that stay."""
    limit = round(p * STEPS)
    return limit, STEPS / max(1, STEPS - limit)


def dropout(x: Float[Tensor, "*b c"], p: float, seed: Int[Tensor, "1"]) -> Float[Tensor, "*b c"]:
    """Set a share p of the numbers of x to zero, and divide the others by 1 - p."""
    if p == 0.0:
        return x
    dropped: Tensor = Dropout.apply(x, p, seed)
    return dropped


def relu_dropout(
    x: Float[Tensor, "*b c"], bias: Float[Tensor, " c"] | None, p: float, seed: Int[Tensor, "1"] | None
) -> Float[Tensor, "*b c"]:
    """Compute dropout(relu(x + bias)), keeping only its result for the backward pass.

    x is a linear layer's product without its bias, whose gradient costs no pass of its own here.
    """
    dropped: Tensor = ReluDropout.apply(x, bias, p, seed)
    return dropped


def gelu_dropout(
    x: Float[Tensor, "*b c"], bias: Float[Tensor, " c"] | None, p: float, seed: Int[Tensor, "1"] | None
) -> Float[Tensor, "*b c"]:
    """Compute dropout(gelu(x + bias)), gelu in its exact form, keeping x for the backward pass."""
    dropped: Tensor = SmoothDropout.apply(x, bias, p, seed, "gelu")
    return dropped


def silu_dropout(
    x: Float[Tensor, "*b c"], bias: Float[Tensor, " c"] | None, p: float, seed: Int[Tensor, "1"] | None
) -> Float[Tensor, "*b c"]:
    """Compute dropout(silu(x + bias)), keeping x for the backward pass."""
    dropped: Tensor = SmoothDropout.apply(x, bias, p, seed, "silu")
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

    The weight's gradient has the weight's own dtype and adds a token's rows in the same order each time.
    """
    embedded: Tensor = Embed.apply(ids, weight, scale, positions, p, seed, table, dtype or weight.dtype)
    return embedded


class Dropout(torch.autograd.Function):
    """Dropout as x ∘ keep / P(keep); the backward pass is the same with the same seed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: Tensor) -> Tensor:
        ctx.save_for_backward(seed)
        ctx.p = p
        return apply_mask(x, p, seed, odds(p)[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (seed,) = ctx.saved_tensors
        return Dropout.apply(grad, ctx.p, seed), None, None


class ReluDropout(torch.autograd.Function):
    """A ReLU and dropout as relu(x + bias) ∘ keep / P(keep); the gradient passes only where the result is positive."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, p: float, seed: Tensor | None) -> Tensor:
        x = x.contiguous()
        width, result = x.shape[-1], torch.empty_like(x)
        rows, (limit, scale) = x.numel() // max(1, width), odds(p)
        if x.numel():
            tile, warps = across(width)
            relu_forward[(triton.cdiv(rows, 8), triton.cdiv(width, tile))](
                x, bias, seed, result, rows, limit, scale, width, tile, bias is not None, p > 0.0, num_warps=warps
            )
        ctx.save_for_backward(result, bias)
        ctx.scale = scale
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        result, bias = ctx.saved_tensors
        grad = grad.contiguous()
        width, d_x = grad.shape[-1], torch.empty_like(result)
        rows = grad.numel() // max(1, width)
        add = bias is not None and ctx.needs_input_grad[1]
        tile, warps = across(width)
        blocks, groups = triton.cdiv(width, tile), triton.cdiv(rows, 8)
        shares = max(1, min(groups, 4 * processors(grad.device) // blocks))
        partial = grad.new_empty((shares, width), dtype=torch.float32) if add else None
        relu_backward[(shares, blocks)](grad, result, d_x, partial, rows, ctx.scale, width, tile, add, num_warps=warps)
        return d_x, None if partial is None else total(partial).to(bias.dtype), None, None


class SmoothDropout(torch.autograd.Function):
    """GELU or SiLU and dropout as f(x + bias) ∘ keep / P(keep); f's slope and the mask are computed again for backward.

    A ReLU's result tells its slope; of these two only the input does.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, p: float, seed: Tensor | None, name: str) -> Tensor:
        x = x.contiguous()
        width, result = x.shape[-1], torch.empty_like(x)
        rows, (limit, scale) = x.numel() // max(1, width), odds(p)
        if x.numel():
            tile, warps = across(width)
            smooth_forward[(triton.cdiv(rows, 8), triton.cdiv(width, tile))](
                x, bias, seed, result, rows, limit, scale, width, tile, bias is not None, p > 0.0, name, num_warps=warps
            )
        ctx.save_for_backward(x, bias, seed)
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
        smooth_backward[(shares, blocks)](
            grad, x, bias, seed, d_x, partial, rows, limit, scale, width, tile, bias is not None, p > 0.0, add, name,
            num_warps=warps,
        )  # fmt: skip
        return d_x, None if partial is None else total(partial).to(bias.dtype), None, None, None


class Embed(torch.autograd.Function):
    """An embedding, its position and dropout."""

    @staticmethod
    def forward(
        ctx: Any,
        ids: Tensor,
        weight: Tensor,
        scale: float,
        positions: Tensor,
        p: float,
        seed: Tensor | None,
        table: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        ids, positions, width = ids.contiguous(), positions.contiguous(), weight.shape[1]
        result = weight.new_empty((*ids.shape, width), dtype=dtype)
        limit, kept_scale = odds(p)
        if result.numel():
            tile, warps = across(width)
            embed_forward[(triton.cdiv(ids.numel(), 8), triton.cdiv(width, tile))](
                ids,
                weight.contiguous(),
                positions,
                table.contiguous(),
                seed,
                result,
                ids.numel(),
                len(weight),
                len(table),
                scale,
                limit,
                kept_scale,
                width,
                tile,
                p > 0.0,
                num_warps=warps,
            )
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
    """Choose the width of a tile of eight rows, and how many warps share it: each thread has eight columns."""
    tile = min(512, max(16, triton.next_power_of_2(width)))
    return tile, max(1, tile // 256)
