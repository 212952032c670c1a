"""The task protocol: everything that the loop asks of what is learned. The loop knows nothing else.

A task of your own needs an objective and its batches:

    class Doubling(Task):
        objective = Objective(nn.Linear(1, 1))            # objective(batch) -> Loss
        def epoch(self, number): return torch.linspace(-1, 1, 160).view(10, 16, 1)

A batch is a plan as it is, here 16 numbers, unless `batch` is overridden.
"""

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.data import Position
from regard.errors import TrainingError
from regard.training.progress import Sample

__all__ = ["Loss", "Position", "Sample", "Task"]


class Loss(NamedTuple):
    """The result of an objective: a sum that is differentiated, and further sums to be reported."""

    total: Tensor
    parts: dict[str, Tensor] = {}  # noqa: RUF012


RENAMED = {"few_shapes": "limit_shapes", "ahead": "can_prefetch"}  # what tasks of earlier versions may define


class Task:
    """A task to learn: its objective, its batches, how it is measured.

    A *plan* is whatever stands for a batch before it is loaded, cheap to make and to count: the loop takes plans from
    `stream`, divides losses by the `count` of all plans of an update (on every process), and loads only its own.
    """

    objective: nn.Module  # a module around the model: objective(batch) -> Loss
    unit: str = "tokens"  # what `count` counts
    can_prefetch: bool = False  # batches before their step: `batch` is a function of its arguments alone
    metric: str = "loss"  # of what `validate` gives, the one that says which checkpoint is best

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Take over what a class defines under an older name, and give what it defines that name, too."""
        super().__init_subclass__(**arguments)
        for old, new in RENAMED.items():
            if old in vars(cls):
                message = f"{cls.__name__}.{old} is now called {new}: rename it"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                setattr(cls, new, vars(cls)[old])
            elif new in vars(cls):
                setattr(cls, old, vars(cls)[new])

    def epoch(self, number: int) -> Iterable[Any]:
        """Yield the plans of an epoch, a function of its number alone."""
        raise NotImplementedError

    def stream(self, position: Position) -> Iterator[tuple[Position, Any]]:
        """Yield plans without end from a position on, each with its own position."""
        for epoch in itertools.count(position.epoch):
            first = position.batch if epoch == position.epoch else 0
            empty = True
            for batch, plan in enumerate(self.epoch(epoch)):
                empty = False
                if batch >= first:
                    yield Position(epoch, batch), plan
            if empty:
                raise TrainingError("no batches to train on: the epoch is empty")

    def count(self, plan: Any) -> int:
        """Return the count that this plan's loss is a sum over: tokens, or examples."""
        return len(plan)

    def batch(self, plan: Any, position: Position) -> Any:
        """Load the tensors of a plan, on the host."""
        return plan

    def limit_shapes(self, half: bool) -> None:
        """Keep the number of batch shapes small; called before the first batch where each shape costs preparation.

        `half`: matrix products are in half precision.
        """

    def halves(self, batch: Any) -> Sequence[Any]:
        """Split the batch in two, for when it does not fit into memory."""
        raise TrainingError("out of memory, and this task's batches cannot be split: make them smaller")

    def move(self, batch: Any, device: torch.device) -> Any:
        """Move the batch to a device."""
        if isinstance(batch, Tensor):
            return batch.to(device, non_blocking=device.type == "cuda")
        if isinstance(batch, tuple | list):
            return type(batch)(self.move(each, device) for each in batch)
        return batch

    def validate(self) -> dict[str, float]:
        """Measure the model on held-out data; `loss` and `metric` are among the figures, where there are any."""
        return {}

    def samples(self) -> list[Sample]:
        """Return a few examples of the model's current output."""
        return []

    def facts(self) -> list[tuple[str, str]]:
        """List the facts to print before training starts."""
        return []

    def fingerprint(self) -> dict[str, Any]:
        """Return what must be equal for a checkpoint to fit; it is stored in the manifest and compared on loading."""
        return {}

    few_shapes, ahead = limit_shapes, can_prefetch
