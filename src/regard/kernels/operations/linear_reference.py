"""The specification of the affine map and of the sums that its gradients are."""

# b rows · t tokens · e width in · d width out · c columns · v indices
import torch
from torch import Tensor

from regard.kernels.reference import widen


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute y_i = Σ_j W_ij x_j + b_i: [*b e], [d e] and [d] -> [*b d]."""
    product = (x.unsqueeze(-2) * weight).sum(-1)
    return product if bias is None else product + bias


def column_sums(x: Tensor) -> Tensor:
    """Compute the gradient of a bias: [t c] -> [c], the sum of the rows, in float32 or wider."""
    return widen(x).sum(0)


def row_sums(x: Tensor, ids: Tensor, count: int, factor: float = 1.0) -> Tensor:
    """Compute an embedding's gradient, the sum of the rows with each index: [t c], [t] -> [v c], float32 or wider."""
    return torch.stack([widen(x[ids == index]).sum(0) for index in range(count)]) * factor
