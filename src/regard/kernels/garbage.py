"""Pausing and slowing of Python's garbage collector where it would do harm."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW = (20_000, 20, 20)  # objects between two searches for garbage: a busy server makes thousands a burst


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


def settle_memory() -> None:
    """Leave what is loaded by now out of every later search for garbage, which would stop all threads for long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*NEW)
