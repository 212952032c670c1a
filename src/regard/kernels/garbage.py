"""Python's collector of garbage, kept out of where it does harm."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["pause_garbage_collection"]


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Inside, no garbage is looked for.

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
