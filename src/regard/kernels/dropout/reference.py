"""The specification of dropout, given which numbers are kept: x ∘ keep / P(keep)."""

import torch
from torch import Tensor

__all__ = ["dropout_add", "dropout", "relu_dropout"]


def dropout(x: Tensor, keep: Tensor, kept: float) -> Tensor:
    """Some numbers of x set to zero; the others scaled, so that the expectation stays."""
    return torch.where(keep, x / kept, 0.0)


def dropout_add(x: Tensor, y: Tensor, keep: Tensor, kept: float) -> Tensor:
    """A residual: x + dropout(y)."""
    return x + dropout(y, keep, kept)


def relu_dropout(x: Tensor, keep: Tensor, kept: float) -> Tensor:
    """dropout(relu(x))."""
    return dropout(x.relu(), keep, kept)
