"""Averages of weights: a moving one while training, or the mean of several checkpoints."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn


class MovingAverage:
    r"""An exponential moving average: $\bar\theta \leftarrow \beta \bar\theta + (1 - \beta) \theta$ after every step.

    Early on β is smaller, (1 + t) / (10 + t), so that the first weights are soon forgotten.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], decay: float):
        self.decay = decay
        self.values = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def update(self, parameters: Sequence[nn.Parameter], step: int) -> None:
        """Update the average with the weights after a step, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.values, [parameter.detach() for parameter in parameters], 1 - decay)

    @contextlib.contextmanager
    def swap_in(self, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """Replace the parameters by their averages inside the block."""
        saved = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            for parameter, value in zip(parameters, self.values, strict=True):
                parameter.copy_(value)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, value in zip(parameters, saved, strict=True):
                    parameter.copy_(value)


def mean_weights(weights: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Average the weights of several checkpoints, in double precision until the end."""
    return {
        name: (sum(each[name].double() for each in weights) / len(weights)).to(first.dtype)  # type: ignore[union-attr]
        for name, first in weights[0].items()
    }
