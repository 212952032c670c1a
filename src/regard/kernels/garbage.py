"""Pausing of Python's garbage collector where it would do harm."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["pause_garbage_collection"]


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause Python's garbage collection inside the block.

    In the capture of a CUDA graph an older graph could be among it, and to free that ends the capture. And thousands of
    new lists would start the search again and again, in vain.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
