"""The error that half precision may cause in a fused kernel: no more than in torch's own operations under autocast.

A single draw says little about one tensor. A ReLU whose input is near zero switches on or off with its rounding, which
changes the unit's gradient: for the plain operations under autocast, more than half of the draws of a small model have
a gradient that is 5 % off. So each tensor is judged by the median of several draws.
"""

import statistics
from collections.abc import Sequence

from torch import Tensor

DRAWS = 3
Results = Sequence[Tensor]


def error(found: Tensor, exact: Tensor) -> float:
    """Return the distance relative to the exact result's norm."""
    found, exact = found.detach().double(), exact.detach().double()
    return float((found - exact).norm() / exact.norm().clamp(min=1e-12))


def check_as_exact(draws: Sequence[tuple[Results, Results, Results]]) -> None:
    """Check draws of (found results, torch's in half precision, torch's in single precision)."""
    assert len(draws) >= DRAWS
    for number, tensors in enumerate(zip(*(zip(*draw, strict=True) for draw in draws), strict=True)):
        over = [error(found, exact) - (2.5 * error(plain, exact) + 0.01) for found, plain, exact in tensors]
        assert statistics.median(over) < 0, (number, over)
