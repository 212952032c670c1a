"""The specification of dropout, given which numbers are kept: x ∘ keep / P(keep)."""

import torch
from torch import Tensor


def dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Set some numbers of x to zero and scale the others, so that the expectation stays the same."""
    return torch.where(keep, x / keep_probability, 0.0)


def dropout_add(x: Tensor, y: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Compute a residual, x + dropout(y)."""
    return x + dropout(y, keep, keep_probability)


def relu_dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Compute dropout(relu(x))."""
    return dropout(x.relu(), keep, keep_probability)


def gelu_dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Compute dropout(x · Φ(x)), Φ the normal distribution (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    return dropout(x * 0.5 * (1 + torch.erf(x * 0.5**0.5)), keep, keep_probability)


def silu_dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Compute dropout(x · σ(x)), also called swish (the same paper; Ramachandran et al. 2017, arXiv:1710.05941)."""
    return dropout(x * torch.sigmoid(x), keep, keep_probability)
