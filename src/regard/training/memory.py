"""Recovery from running out of memory: the same work is repeated in smaller parts."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from regard.errors import TrainingError
from regard.training.task import Task

T = TypeVar("T")


def attempt_in_parts(attempt: Callable[[int], T], again: Callable[[int], None]) -> T:
    """Call `attempt(1)`; if memory runs out, `attempt(2)`, `attempt(4)` and so on, with `again(parts)` before each."""
    parts = 1
    while True:
        try:
            return attempt(parts)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Outside of the handler: the traceback holds on to every tensor that did fit.
        parts *= 2
        again(parts)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on a GPU or on the host."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def split_batch(task: Task, batch: Any, parts: int) -> tuple[list[Any], TrainingError | None]:
    """Split the batch into so many parts, a power of two, or as many as it has; raise if it cannot be split."""
    cut: list[Any] = [batch]
    problem: TrainingError | None = None
    for _ in range(parts.bit_length() - 1):
        before, cut = cut, []
        problem = TrainingError("out of memory, and this task cannot make its batches smaller")
        for each in before:
            try:
                cut += task.halves(each)
            except TrainingError as error:  # one example: others of this update may still be cut
                cut.append(each)
                problem = error
        if len(cut) > len(before):
            problem = None
    return cut, problem
