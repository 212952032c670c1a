"""Lines of text as they come: from a file, gzip or not, from a pipe, from a keyboard.

A line ends at a line feed, with or without a carriage return before it, and nowhere else: U+2028 and its like are
characters. What is there is read; nobody waits for more. So whoever types a line into a pipe is answered before the
next one, and a file still comes in chunks that fill a batch.
"""

import io
import select
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from regard.data.corpus import GZIP, UTF8_MARK, UTF16_MARKS
from regard.errors import CommandError, DataError

__all__ = ["CHUNK", "CHUNK_CUDA", "chunks", "count_lines", "is_pipe", "name_of"]

CHUNK = 1024  # lines that are searched together: enough to sort by length, few enough to see them come
CHUNK_CUDA = 16 * CHUNK
STANDARD = "-"
BYTES = 1 << 16
UNZIPPED = 16 + zlib.MAX_WBITS  # with gzip's header


@runtime_checkable
class Bytes(Protocol):
    """What bytes come from."""

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


def chunks(path: str | Path, size: int = CHUNK) -> Iterator[list[str]]:
    """The lines of a file or, for "-", of standard input: those that are there, `size` at most, one at least.

    A DataError names the line that is not UTF-8 text; the lines before it are given first.
    """
    if str(path) == STANDARD:
        if sys.stdin is None:
            raise CommandError("standard input: closed, expected lines of text or a file's name")
        yield from decoded(split(cast(Bytes, sys.stdin.buffer), "standard input", size), "standard input")
        return
    if Path(path).is_dir():
        raise DataError(f"{path}: a folder given, expected a file")
    try:
        with open(path, "rb") as stream:
            yield from decoded(split(stream, str(path), size), str(path))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def split(stream: Bytes, name: str, size: int) -> Iterator[list[bytes]]:
    """Lines without their ends, as many as can be had without waiting."""
    source = unpacked(stream, name)
    lines: list[bytes] = []
    begun: list[bytes] = []  # a line whose end was not seen yet, in the parts that came
    for data in source:
        first, *rest = data.split(b"\n")
        begun.append(first)
        if rest:
            lines += [b"".join(begun), *rest[:-1]]
            begun = [rest[-1]]
        while len(lines) >= size:
            yield lines[:size]
            lines = lines[size:]
        if lines and not ready(stream):
            yield lines
            lines = []
    last = b"".join(begun)
    lines += [last] if last else []
    if lines:
        yield lines


def ready(stream: Bytes) -> bool:
    """Whether reading on would not have to wait."""
    try:
        number = stream.fileno()
    except io.UnsupportedOperation:  # it is all in memory
        return True
    try:
        return bool(select.select([number], [], [], 0)[0])
    except (OSError, ValueError):  # a system that can only ask this of sockets
        return False


def unpacked(stream: Bytes, name: str) -> Iterator[bytes]:
    """The bytes as they come, unpacked where the first two say that they are gzip."""
    data = stream.read1(BYTES)
    while len(data) == 1 and (more := stream.read1(BYTES)):
        data += more
    if not data.startswith(GZIP):
        while data:
            yield data
            data = stream.read1(BYTES)
        return
    member = zlib.decompressobj(UNZIPPED)
    try:
        while data:
            if member.eof:  # files that were packed one by one and put together, or the padding of an archive
                data = data.lstrip(b"\0")
                if not data:
                    data = stream.read1(BYTES)
                    continue
                member = zlib.decompressobj(UNZIPPED)
            yield member.decompress(data)
            data = member.unused_data or stream.read1(BYTES)
    except zlib.error as error:
        raise DataError(f"{name}: broken gzip: {error}") from None
    if not member.eof:
        raise DataError(f"{name}: broken gzip: it ends too early")


def decoded(chunks: Iterator[list[bytes]], name: str) -> Iterator[list[str]]:
    """Bytes to text; the good lines of a chunk are given before a bad one is spoken of."""
    number = 0
    for chunk in chunks:
        lines = []
        for raw in chunk:
            number += 1
            try:
                lines.append(text_of(raw, number))
            except DataError as error:
                if lines:
                    yield lines
                raise DataError(f"{name}, line {number:,}: {error}") from None
        yield lines


def text_of(raw: bytes, number: int) -> str:
    """One line, or a DataError that says why it is none."""
    if number == 1 and raw.startswith(UTF16_MARKS):
        raise DataError("looks like UTF-16, expected UTF-8 text")
    line = (raw.removeprefix(UTF8_MARK) if number == 1 else raw).removesuffix(b"\r")
    if b"\0" in line:
        raise DataError(f"byte {line.index(0) + 1:,} is NUL, as in binary files; expected UTF-8 text")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"byte {error.start + 1:,} (0x{line[error.start]:02x}) is not UTF-8; expected UTF-8 text"
        ) from None
