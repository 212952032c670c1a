"""Scores and sums in float32, whatever the inputs are in: in float16 a score above 65,504 would be infinite."""

import torch
from torch import Tensor

__all__ = ["matmul_wide", "widen"]


def widen(x: Tensor) -> Tensor:
    """Half precision as float32; what is wider as it is."""
    return x.float() if x.element_size() < 4 else x


def matmul_wide(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32 or wider, under autocast too."""
    kind = a.device.type
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return widen(a) @ widen(b)
    return widen(a) @ widen(b)
