"""Lines of text as they come: from a file, gzip or not, from a pipe, from a keyboard.

What is there is read; nobody waits for more. So whoever types a line into a pipe is answered before the next one, and a
file still comes in chunks that fill a batch. What a line is, and how long it may be, `regard.data.lines` says.
"""

import io
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from regard.data.lines import Say, read_lines, silent
from regard.errors import CommandError, DataError

__all__ = ["CHUNK", "CHUNK_CUDA", "changed", "chunks", "count_lines", "is_pipe", "name_of"]

CHUNK = 1024  # lines that are searched together: enough to sort by length, few enough to see them come
CHUNK_CUDA = 16 * CHUNK
CHARACTERS = 4_000_000  # of a chunk: some long lines are enough
STANDARD = "-"


@runtime_checkable
class Stream(Protocol):
    """What bytes come from, and whether there are more."""

    def read1(self, size: int = ..., /) -> bytes: ...
    def fileno(self) -> int: ...


def name_of(path: str | Path) -> str:
    """What a file is called in messages."""
    return "standard input" if str(path) == STANDARD else str(path)


def is_pipe(path: str | Path) -> bool:
    """Whether it is there and cannot be read twice: standard input, a named pipe."""
    return str(path) == STANDARD or (Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir())


def count_lines(path: str | Path) -> int:
    """The lines of a file, all of them looked at: what cannot be read is known before any work is done."""
    return sum(map(len, chunks(path)))


def changed(path: str | Path, before: int | None, lines: int) -> None:
    """Refuse a file that had another number of lines when they were counted."""
    if before is not None and lines != before:
        raise DataError(f"{path}: changed while it was read: it had {before:,} lines, and then {lines:,}")


def chunks(path: str | Path, size: int = CHUNK, say: Say = silent) -> Iterator[list[str]]:
    """The lines of a file or, for "-", of standard input: those that are there, `size` at most, one at least.

    A DataError names the line that is not UTF-8 text; the lines before it are given first. `say` is told at the end how
    many lines were cut.
    """
    if str(path) == STANDARD:
        if sys.stdin is None:
            raise CommandError("standard input: closed, expected lines of text or a file's name")
        yield from gathered(cast(Stream, sys.stdin.buffer), "standard input", size, say)
        return
    if Path(path).is_dir():
        raise DataError(f"{path}: a folder given, expected a file")
    try:
        with open(path, "rb") as stream:
            yield from gathered(stream, str(path), size, say)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def gathered(stream: Stream, name: str, size: int, say: Say = silent) -> Iterator[list[str]]:
    """As many lines as can be had without waiting."""
    lines: list[str] = []
    characters = 0
    try:
        for more in read_lines(stream, name, say):
            lines += more
            characters += sum(map(len, more))
            while len(lines) >= size:
                yield lines[:size]
                lines = lines[size:]
                characters = sum(map(len, lines))
            if lines and (characters >= CHARACTERS or not ready(stream)):
                yield lines
                lines, characters = [], 0
    except DataError:
        if lines:
            yield lines
        raise
    if lines:
        yield lines


def ready(stream: Stream) -> bool:
    """Whether reading on would not have to wait."""
    try:
        number = stream.fileno()
    except io.UnsupportedOperation:  # it is all in memory
        return True
    try:
        return bool(select.select([number], [], [], 0)[0])
    except (OSError, ValueError):  # a system that can only ask this of sockets
        return False
