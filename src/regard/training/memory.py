"""When memory runs out: the same work again, in smaller parts."""

from collections.abc import Callable
from typing import TypeVar

import torch

__all__ = ["attempt_in_parts", "out_of_memory"]

T = TypeVar("T")


def attempt_in_parts(attempt: Callable[[int], T], again: Callable[[int], None]) -> T:
    """`attempt(1)`; where it runs out of memory `attempt(2)`, `attempt(4)` and so on, `again(parts)` before each."""
    parts = 1
    while True:
        try:
            return attempt(parts)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
        # Outside of the handler: the traceback holds on to every tensor that did fit.
        parts *= 2
        again(parts)


def out_of_memory(error: BaseException) -> bool:
    """Whether it is memory that ran out, on a GPU or on the host."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
