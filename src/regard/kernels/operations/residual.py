"""x + dropout(y + bias) and its layer norm: one pass over memory where Triton serves, torch's operations elsewhere."""

# d width
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ShapeError
from regard.kernels.operations.dropout import dropout_add
from regard.kernels.table import NEEDS_TRITON, SINGLE_OR_HALF, Request, Row, Table, compiling

WIDEST = 8192  # a row stands in the registers of one program

RESIDUAL = Table(
    "residual",
    Row(
        name="triton",
        devices=("cuda",),
        dtypes=SINGLE_OR_HALF,
        most={"width": WIDEST},
        conditions=(NEEDS_TRITON,),
    ),
    Row(name="torch", features=None),
    steps={"width": (WIDEST,)},
)


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
    """Compute x + dropout(y + bias) and, given a `norm_weight`, its layer norm.

    `bias` is that of the linear layer which made y, left to this function. The sum has x's dtype, the norm `dtype`, or
    y's. `seed` is `dropout_triton.draw_seed`'s; one is drawn where none is given. On a CPU it is not asked for.
    """
    if x.shape != y.shape:
        raise ShapeError(f"y: {list(y.shape)} given, expected x's {list(x.shape)}")
    if RESIDUAL.choose(describe(x, y)).name == "triton":
        from regard.kernels.operations import residual_triton as triton

        return triton.residual(x, y, bias, p, norm_weight, norm_bias, eps, seed=seed, dtype=dtype)
    together = dropout_add(x, (y if bias is None else y + bias).to(x.dtype), p)
    if norm_weight is None:
        return together, None
    normed = F.layer_norm(together.to(norm_weight.dtype), together.shape[-1:], norm_weight, norm_bias, eps)
    return together, normed.to(dtype or y.dtype)


def describe(x: Tensor, y: Tensor) -> Request:
    """Put a call into plain data."""
    return Request(x.device.type, (x.dtype, y.dtype), compiling(), {"width": x.shape[-1]})
