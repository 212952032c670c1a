"""The specification of dropout, given which numbers are kept: x ∘ keep / P(keep)."""

import torch
from torch import Tensor

__all__ = ["add_dropped", "dropout", "relu_dropped"]


def dropout(x: Tensor, keep: Tensor, kept: float) -> Tensor:
    """Some numbers of x set to zero; the others scaled, so that the expectation stays."""
    return torch.where(keep, x / kept, 0.0)


def add_dropped(x: Tensor, y: Tensor, keep: Tensor, kept: float) -> Tensor:
    """A residual: x + dropout(y)."""
    return x + dropout(y, keep, kept)


def relu_dropped(x: Tensor, keep: Tensor, kept: float) -> Tensor:
    """dropout(relu(x))."""
    return dropout(x.relu(), keep, kept)
