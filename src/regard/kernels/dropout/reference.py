"""The specification of dropout, given which numbers are kept: x ∘ keep / P(keep)."""

import torch
from torch import Tensor

__all__ = ["dropout_add", "dropout", "relu_dropout"]


def dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Set some numbers of x to zero and scale the others, so that the expectation stays the same."""
    return torch.where(keep, x / keep_probability, 0.0)


def dropout_add(x: Tensor, y: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Compute a residual, x + dropout(y)."""
    return x + dropout(y, keep, keep_probability)


def relu_dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Compute dropout(relu(x))."""
    return dropout(x.relu(), keep, keep_probability)
