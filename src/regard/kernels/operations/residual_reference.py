"""The specification of a residual with its norm, given which numbers are kept: s = x + dropout(y + b), LayerNorm(s)."""

# t rows · d width
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.operations.dropout import reference


def residual(
    x: Tensor,
    y: Tensor,
    bias: Tensor | None,
    keep: Tensor | None,
    keep_probability: float,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor | None]:
    """Compute the sum [t d] in x's dtype, and its norm (Ba et al. 2016, arXiv:1607.06450) where that has a weight."""
    y = y if bias is None else y + bias
    y = y if keep is None else reference.dropout(y, keep, keep_probability)
    together = (x + y).to(x.dtype)
    if norm_weight is None:
        return together, None
    wide = torch.promote_types(x.dtype, norm_weight.dtype)
    return together, F.layer_norm(together.to(wide), together.shape[-1:], norm_weight, norm_bias, eps)
