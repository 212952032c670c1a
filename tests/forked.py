"""Children of the test process, in which everything is loaded already: they start at once, and may be killed."""

import contextlib
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

__all__ = ["ended", "fork_for_spawn", "forked"]


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


class Picklable(multiprocessing.context.ForkProcess):
    """A process that is forked, and could have been spawned: whatever it is given can be sent to it."""

    def start(self) -> None:
        for each in (self._target, *self._args, *self._kwargs.values()):
            if not isinstance(each, Connection):
                with contextlib.suppress(RuntimeError):  # queues and connections can, but only while one is spawned
                    pickle.dumps(each)
        super().start()


class ForkContext(multiprocessing.context.ForkContext):
    Process = Picklable


def fork_for_spawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork where a new process is asked for, which imports torch for seconds; another test starts the new one."""

    def get_context(method: str) -> ForkContext:
        assert method == "spawn"
        return ForkContext()

    monkeypatch.setattr(multiprocessing, "get_context", get_context)


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
