"""Children of the test process, in which everything is loaded already: they start at once, and may be killed."""

import os
import signal
from collections.abc import Callable

__all__ = ["ended", "forked"]


def forked(work: Callable[[], object], seconds: int = 60) -> int:
    """Run it in a child that never comes back into the tests."""
    import torch._dynamo  # noqa: F401 (every optimiser imports it: here, once for all children)

    child = os.fork()
    if child == 0:
        try:
            signal.alarm(seconds)
            work()
        finally:
            os._exit(7)
    return child


def ended(work: Callable[[], object]) -> str:
    """What a person would have read at the end: nothing where all went well, else the error in one sentence."""
    try:
        work()
    except Exception as error:
        from regard.errors import RegardError

        if isinstance(error, RegardError):
            return str(error)
        if isinstance(error, OSError) and error.filename and error.strerror:  # as the command line says it
            return f"{error.filename}: {error.strerror}"
        return f"traceback: {type(error).__name__}: {error}"
    return ""
