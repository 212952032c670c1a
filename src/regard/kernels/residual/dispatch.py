"""x + dropout(y + bias) and its layer norm: one pass over memory where Triton serves, torch's operations elsewhere."""

# d width
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ShapeError
from regard.kernels.dropout.cpu import add_dropped

__all__ = ["residual"]

WIDEST = 8192  # a row stands in the registers of one program
NARROW = (torch.float32, torch.bfloat16, torch.float16)


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
    """x + dropout(y + bias), and the layer norm of that; without a `norm_weight` there is none.

    `bias` is that of the linear layer which made y, left to this function. The sum has x's dtype, the norm `dtype`, or
    y's. `seed` is `dropout.triton.draw_seed`'s; one is drawn where none is given. On a CPU it is not asked for.
    """
    if x.shape != y.shape:
        raise ShapeError(f"y: {list(y.shape)} given, expected x's {list(x.shape)}")
    if served(x, y):
        from regard.kernels.residual import triton

        return triton.residual(x, y, bias, p, norm_weight, norm_bias, eps, seed=seed, dtype=dtype)
    together = add_dropped(x, (y if bias is None else y + bias).to(x.dtype), p)
    if norm_weight is None:
        return together, None
    normed = F.layer_norm(together.to(norm_weight.dtype), together.shape[-1:], norm_weight, norm_bias, eps)
    return together, normed.to(dtype or y.dtype)


def served(x: Tensor, y: Tensor) -> bool:
    """Whether the kernels take this call."""
    return bool(
        x.is_cuda
        and x.dtype in NARROW
        and y.dtype in NARROW
        and x.shape[-1] <= WIDEST
        and find_spec("triton") is not None
        and not torch.compiler.is_compiling()
    )
