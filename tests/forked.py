"""Children of the test process, in which everything is already loaded: they start at once, and may be killed."""

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
    """Run `work` in a child that never returns into the tests."""
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
    """A forked process that could have been spawned: its arguments can be pickled."""

    def start(self) -> None:
        for each in (self._target, *self._args, *self._kwargs.values()):
            if not isinstance(each, Connection):
                with contextlib.suppress(RuntimeError):  # queues and connections pickle only while one is spawned
                    pickle.dumps(each)
        super().start()


class ForkContext(multiprocessing.context.ForkContext):
    Process = Picklable


def fork_for_spawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork instead of spawning a new process, which imports torch for seconds; another test starts a new one."""

    def get_context(method: str) -> ForkContext:
        assert method == "spawn"
        return ForkContext()

    monkeypatch.setattr(multiprocessing, "get_context", get_context)


def ended(work: Callable[[], object]) -> str:
    """Return the final message: empty if all went well, otherwise the error in one sentence."""
    try:
        work()
    except Exception as error:
        from regard.errors import RegardError

        if isinstance(error, RegardError):
            return str(error)
        if isinstance(error, OSError) and error.filename and error.strerror:  # as the command line prints it
            return f"{error.filename}: {error.strerror}"
        return f"traceback: {type(error).__name__}: {error}"
    return ""
