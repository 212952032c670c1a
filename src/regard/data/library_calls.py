"""Calls of the `tokenizers` library: its panics become errors, and its threads do not stop a process from forking."""

import os
from collections.abc import Callable
from typing import Any

from regard.config import visible
from regard.errors import DataError


def call_library(problem: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function of the library; its panics, which are no `Exception` in Python, become a DataError too."""
    try:
        return function(*arguments, **options)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{problem}: {visible(message[:200])}") from None


def quiet_fork() -> None:
    """Let processes fork: the library's threads do not survive in a child, which encodes on one thread.

    Without this the library warns on every fork, and a child that encodes a batch could wait for ever.
    """
    name = "TOKENIZERS_PARALLELISM"
    ours: list[bool] = []

    def before() -> None:
        ours.append(name not in os.environ)
        if ours[-1]:
            os.environ[name] = "false"

    def after() -> None:
        if ours.pop():
            os.environ.pop(name, None)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after)


quiet_fork()
