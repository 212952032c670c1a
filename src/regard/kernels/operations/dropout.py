"""Dropout, and the residual after it: a mask drawn here on a CPU, torch's own dropout elsewhere and when compiling.

A GPU's fused steps call `triton/dropout.py` directly, with a seed that stays on the device. With Triton, x + dropout(y
+ bias) and its layer norm are one pass over memory.

On a CPU the mask is cheap: sixteen random bits per element, one byte of mask, few passes over memory. torch's
`bernoulli_` takes 6 ns per element, a fifth of a training step on two cores. A mask drawn here takes a tenth of that;
forward and backward together take a quarter of F.dropout's time (one thread, a million elements). One draw from torch's
generator seeds an SFC64 for the call, whose words are cut into sixteen-bit numbers: draws are independent, the
probability of a drop is within 2⁻¹⁷ of p, and `torch.manual_seed` and a saved state of torch's generator repeat the
masks.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ShapeError
from regard.kernels.planning import has_kernel

STEPS = 1 << 16  # number of values of sixteen bits
WIDEST = 8192  # largest width at which a residual's row fits the registers of one program


def dropout(x: Tensor, p: float) -> Tensor:
    """Set a share p of the elements of x to zero, and divide the others by 1 - p."""
    if p == 0.0:
        return x
    drawn = draw(x, p)
    dropped: Tensor = F.dropout(x, p) if drawn is None else Dropout.apply(x, *drawn)
    return dropped


def dropout_add(x: Tensor, y: Tensor, p: float) -> Tensor:
    """Compute the residual x + dropout(y) in one pass."""
    if p == 0.0:
        return x + y
    drawn = draw(y, p) if x.shape == y.shape and x.dtype == y.dtype else None
    together: Tensor = x + dropout(y, p) if drawn is None else DropoutAdd.apply(x, y, *drawn)
    return together


def relu_dropout(x: Tensor, p: float) -> Tensor:
    """Compute dropout(relu(x)); only its result is kept for the backward pass."""
    if p == 0.0:
        return x.relu()
    drawn = draw(x, p)
    dropped: Tensor = F.dropout(x.relu(), p) if drawn is None else ReluDropout.apply(x, *drawn)
    return dropped


def gelu_dropout(x: Tensor, p: float) -> Tensor:
    """Compute dropout(gelu(x)) with the exact GELU; its input and the mask are kept for the backward pass."""
    return dropout(F.gelu(x), p)


def silu_dropout(x: Tensor, p: float) -> Tensor:
    """Compute dropout(silu(x)); its input and the mask are kept for the backward pass."""
    return dropout(F.silu(x), p)


# ---- on a CPU


def draw(x: Tensor, p: float) -> tuple[Tensor, float] | None:
    """Draw which elements of x to keep, one byte each, with their probability; return None if torch draws the mask.

    It draws once from torch's generator. As int8, the mask is converted to floating point ten times faster than as
    bool.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return None
    seed = int(torch.empty((), dtype=torch.int64).random_())
    limit, count = round(p * STEPS), x.numel()
    words = np.random.SFC64(seed).random_raw(-(-count // 4))  # sixty-four bits each
    keep = torch.from_numpy(words.view(np.uint16)[:count] >= limit).view(x.shape)
    return keep, max(1, STEPS - limit) / STEPS


class Dropout(torch.autograd.Function):
    """Dropout as x ∘ keep / P(keep)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.keep_probability = keep_probability
        return keep.view(torch.int8).to(x.dtype).mul_(x).mul_(1 / keep_probability)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return keep.view(torch.int8).to(grad.dtype).mul_(grad).mul_(1 / ctx.keep_probability), None, None


class DropoutAdd(torch.autograd.Function):
    """Dropout and a residual as x + y ∘ keep / P(keep)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.keep_probability = keep_probability
        mask = keep.view(torch.int8).to(y.dtype)
        return torch.addcmul(x, y, mask, value=1 / keep_probability, out=mask)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        (keep,) = ctx.saved_tensors
        dropped = (
            keep.view(torch.int8).to(grad.dtype).mul_(grad).mul_(1 / ctx.keep_probability)
            if ctx.needs_input_grad[1]
            else None
        )
        return grad, dropped, None, None


class ReluDropout(torch.autograd.Function):
    """A ReLU and dropout as relu(x) ∘ keep / P(keep); the gradient passes only where the result is positive."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
        result = keep.view(torch.int8).to(x.dtype).mul_(x).mul_(1 / keep_probability).relu_()
        ctx.save_for_backward(result)
        ctx.keep_probability = keep_probability
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (result,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, result, 0).mul_(1 / ctx.keep_probability), None, None


# ---- the residual


def residual(
    x: Float[Tensor, "*b d"],
    y: Float[Tensor, "*b d"],
    bias: Float[Tensor, " d"] | None,
    p: float,
    norm_weight: Float[Tensor, " d"] | None,
    norm_bias: Float[Tensor, " d"] | None,
    eps: float = 1e-5,
    *,
    seed: Int[Tensor, "1"] | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Float[Tensor, "*b d"], Float[Tensor, "*b d"] | None]:
    """Compute x + dropout(y + bias) and, with a `norm_weight`, its layer norm.

    `bias` belongs to the linear layer that made y and omitted it. The sum has x's dtype; the norm has `dtype`, by
    default y's. `seed` comes from `triton.dropout.draw_seed`, by default a new draw; it is not used on a CPU.
    """
    if x.shape != y.shape:
        raise ShapeError(f"y: {list(y.shape)} given, expected x's {list(x.shape)}")
    fits = x.shape[-1] <= WIDEST and not torch.compiler.is_compiling()
    if fits and has_kernel(x.device.type, x.dtype, y.dtype):
        from regard.kernels.triton import dropout as triton

        made = triton.Residual.apply(x, y, bias, p, norm_weight, norm_bias, eps, seed, dtype or y.dtype)
        return made[0], made[1]
    together = dropout_add(x, (y if bias is None else y + bias).to(x.dtype), p)
    if norm_weight is None:
        return together, None
    normed = F.layer_norm(together.to(norm_weight.dtype), together.shape[-1:], norm_weight, norm_bias, eps)
    return together, normed.to(dtype or y.dtype)
