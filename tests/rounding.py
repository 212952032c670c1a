"""What half precision may cost a fused kernel: not more than it costs torch's own operations under autocast.

One draw says little of one tensor. A ReLU whose input is near zero switches on or off with its rounding, and the
gradient of a unit is then another: of the plain operations under autocast, more than half of the draws of a small model
have a gradient that is 5 % off. So each tensor is judged by the middle one of several draws.
"""

import statistics
from collections.abc import Sequence

from torch import Tensor

DRAWS = 3
Results = Sequence[Tensor]


def error(found: Tensor, exact: Tensor) -> float:
    """The distance, by the size of what it should be."""
    found, exact = found.detach().double(), exact.detach().double()
    return float((found - exact).norm() / exact.norm().clamp(min=1e-12))


def check_as_exact(draws: Sequence[tuple[Results, Results, Results]]) -> None:
    """By draw: what was found, what torch gives in half precision, and what it gives in single precision."""
    assert len(draws) >= DRAWS
    for number, tensors in enumerate(zip(*(zip(*draw, strict=True) for draw in draws), strict=True)):
        over = [error(found, exact) - (2.5 * error(plain, exact) + 0.01) for found, plain, exact in tensors]
        assert statistics.median(over) < 0, (number, over)
