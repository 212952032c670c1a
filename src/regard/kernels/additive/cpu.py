"""Additive scores without a gradient: the reference's, with a tanh that torch has a faster kernel for on a CPU."""

# b batch · n queries · m keys · h hidden
import torch
from torch import Tensor

from regard.kernels.reference import matmul_wide, widen


def scores(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Compute additive scores: [*b n h], [*b m h] and [h] or [heads h] -> [*b n m]."""
    hidden = tanh_(widen(query).unsqueeze(-2) + widen(keys).unsqueeze(-3))
    vector = vector.to(hidden.dtype)
    return (
        matmul_wide(hidden, vector) if vector.ndim == 1 else matmul_wide(hidden, vector[:, None, :, None]).squeeze(-1)
    )


def tanh_(x: Tensor) -> Tensor:
    """tanh(x) = 2σ(2x) - 1, in place: a sigmoid is several times as fast. Right to 1e-7; elsewhere torch's own."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return x.tanh_()
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)
