"""Decode lines of text from bytes, block by block: plain or gzip, from a file, a pipe or a device.

A line ends at a line feed, with or without a carriage return before it, and nowhere else: U+2028 and its like are
characters. Text is UTF-8 without NUL, or of the encoding that an `EncodedFile` names; a DataError names the line that
is not, after the lines before it were given. Where odd bytes are to stop nothing, they are read as �, and how many
lines have some is said once. A CSV comes as lines of a TSV. A line is cut while it is read: LONGEST characters of it
are kept, however long it is and however little it takes packed, so that memory is bounded. How many lines were cut is
said once, with the number of the first.

`read_chunks` reads what is there and does not wait for more: whoever types a line into a pipe is answered before the
next one, and a file still comes in chunks that fill a batch.
"""

import io
import itertools
import select
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from regard.errors import CommandError, DataError
from regard.io.csv_lines import csv_rows, is_csv
from regard.io.encodings import encoding_of, hint, transcode

LONGEST = 1_000_000  # characters of a line: far more than a sentence has, or a document
KEPT = 4 * LONGEST  # bytes that may be needed for them
BLOCK = 1 << 16  # bytes read, or unpacked, at a time
WHOLE = 1 << 29  # bytes of a file that is read as one text
GZIP = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
UNZIPPED = 16 + zlib.MAX_WBITS  # with gzip's header

Say = Callable[[str], None]


CHUNK = 1024  # lines that are searched together: enough to sort by length, few enough to see them come
CHUNK_CUDA = 16 * CHUNK
CHARACTERS = 4_000_000  # of a chunk: some long lines are enough
STANDARD = "-"
TEXT = "the text"  # a GivenText, in messages


@runtime_checkable
class Bytes(Protocol):
    """A source of bytes."""

    def read1(self, size: int = ..., /) -> bytes: ...


class GivenText(str):
    """A text that a person typed where the name of a file could stand: its lines are read as those of a file are."""

    __slots__ = ()


def ignore(text: str) -> None:
    """Drop a message, where somebody else reports it."""


def check_file(path: str | Path) -> None:
    """Refuse what cannot be read twice, and what would never end, before it is opened: pipes and devices."""
    try:
        if not Path(path).exists():
            raise DataError(f"{path}: no such file")
        if Path(path).is_dir():
            raise DataError(f"{path}: a folder given, expected a file")
        if not Path(path).is_file():
            raise DataError(f"{path}: a pipe or a device given, expected a file, because it is read more than once")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_lines(
    stream: Bytes, name: str, say: Say = ignore, encoding: str | None = None, *, replace: bool = False
) -> Iterator[list[str]]:
    """The lines that end in each block of bytes, and the last one; `name` is what the stream is called in messages.

    `encoding` is that of the text, where it is not UTF-8. With `replace` bytes that are not UTF-8 are read as �.
    """
    number = cut = first_cut = 0
    odd = OddLines(name) if replace else None
    begun, length = bytearray(), 0  # a line whose end was not seen yet: what is kept of it, and its bytes so far
    try:
        for block in transcode(decompress(stream), name, encoding):
            nul = block.find(b"\0")
            *ends, rest = (block if nul < 0 else block[:nul]).split(b"\n")
            lines: list[str] = []
            for part in ends:
                number += 1
                raw = append_limited(begun, part) if begun else part
                try:
                    text, whole = decode_line(raw, length + len(part), f"{name}, line {number:,}", number, block, odd)
                except DataError:
                    yield lines
                    raise
                if not whole:
                    cut, first_cut = cut + 1, first_cut or number
                lines.append(text)
                begun, length = bytearray(), 0
            begun, length = append_limited(begun, rest), length + len(rest)
            yield lines
            if nul >= 0:
                check_utf16(begun, f"{name}, line {number + 1:,}", number + 1)
                raise DataError(
                    f"{name}, line {number + 1:,}: byte {length + 1:,} is NUL, as in binary files; expected UTF-8 text"
                    f"{hint(block[:BLOCK])}"
                )
    except zlib.error as error:
        raise DataError(f"{name}: broken gzip after line {number:,}: {reason(error)}") from None
    if begun:
        number += 1
        text, whole = decode_line(begun, length, f"{name}, line {number:,}", number, odd=odd)
        if not whole:
            cut, first_cut = cut + 1, first_cut or number
        yield [text]
    if odd is not None and odd.count:
        say(odd.describe())
    if cut == 1:
        say(f"{name}: line {first_cut:,} has more than {LONGEST:,} characters and was truncated")
    elif cut:
        cuts = f"lines have more than {LONGEST:,} characters and were truncated; the first is line {first_cut:,}"
        say(f"{name}: {cut:,} {cuts}")


def append_limited(begun: bytearray, more: bytes) -> bytearray:
    """A line and what follows of it, as far as it is kept."""
    begun += more[: KEPT - len(begun)]
    return begun


@dataclass
class OddLines:
    """The lines of a stream that have bytes which are not UTF-8, and were replaced."""

    name: str
    count: int = 0
    first: str = ""
    sample: bytes = b""  # what was read with the first, by which another encoding is guessed

    def replace(self, line: bytes | bytearray, number: int, place: int, block: bytes) -> str:
        """Decode a line with � in the place of odd bytes, the first of them at `place`."""
        if not self.count:
            self.sample = bytes(line[:BLOCK]) + block
            self.first = f"line {number:,}, byte {place + 1:,} (0x{line[place]:02x})"
        self.count += 1
        return line.decode(errors="replace")

    def describe(self) -> str:
        """Describe them in one sentence."""
        lines = "1 line has bytes that are" if self.count == 1 else f"{self.count:,} lines have bytes that are"
        first = self.first if self.count == 1 else f"the first is {self.first}"
        guess = "" if self.name == TEXT else hint(self.sample)  # of a text that was typed no option sets the encoding
        return f"{self.name}: {lines} not UTF-8 and were read as �: {first}; convert it to UTF-8{guess}"


def decode_line(
    raw: bytes | bytearray, length: int, place: str, number: int, block: bytes = b"", odd: OddLines | None = None
) -> tuple[str, bool]:
    """A line of `length` bytes, of which these are the first, as text; and whether it is all of it.

    `block` are the bytes that it was read with, by which another encoding is guessed.
    """
    check_utf16(raw, place, number)
    whole = length == len(raw)
    line = raw.removeprefix(UTF8_MARK) if number == 1 else raw
    line = line.removesuffix(b"\r") if whole else line
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        if not whole and error.start >= len(line) - 3:  # half a character, at which it was cut
            text = line[: error.start].decode()
        elif odd is not None:
            text = odd.replace(line, number, error.start, block)
        else:
            raise DataError(
                f"{place}: byte {error.start + 1:,} (0x{line[error.start]:02x}) is not UTF-8; convert the file to UTF-8"
                f"{hint(bytes(raw[:BLOCK]) + block)}"
            ) from None
    return text[:LONGEST], whole and len(text) <= LONGEST


def check_utf16(raw: bytes | bytearray, place: str, number: int) -> None:
    """Refuse a first line that begins as UTF-16 does."""
    if number == 1 and raw.startswith(UTF16_MARKS):
        raise DataError(f"{place}: looks like UTF-16; convert the file to UTF-8, or add --encoding utf-16")


def decompress(stream: Bytes) -> Iterator[bytes]:
    """Bytes as they come, unpacked where the first two say that they are gzip; a zlib.error where that is broken."""
    data = stream.read1(BLOCK)
    while len(data) == 1 and (more := stream.read1(BLOCK)):
        data += more
    if not data.startswith(GZIP):
        while data:
            yield data
            data = stream.read1(BLOCK)
        return
    member = zlib.decompressobj(UNZIPPED)
    while data:
        if member.eof:  # files that were packed one by one and put together, or the padding of an archive
            data = data.lstrip(b"\0")
            if not data:
                data = stream.read1(BLOCK)
                continue
            member = zlib.decompressobj(UNZIPPED)
        yield member.decompress(data, BLOCK)
        data = member.unconsumed_tail or member.unused_data or stream.read1(BLOCK)
    if not member.eof:
        raise zlib.error("it ends too early")


def reason(error: zlib.error) -> str:
    """Describe what is wrong with gzip, without the number that zlib puts before it."""
    return str(error).rpartition("data: ")[2]


def read_whole(path: str | Path) -> str:
    """The text of a file that is no lines, gzip or not."""
    check_file(path)
    data = bytearray()
    try:
        with open(path, "rb") as stream:
            for block in transcode(decompress(stream), str(path), encoding_of(path)):
                data += block
                if len(data) > WHOLE:
                    raise DataError(f"{path}: more than {WHOLE >> 20:,} MiB, too large to read as one text")
        return data.removeprefix(UTF8_MARK).decode()
    except zlib.error as error:
        raise DataError(f"{path}: broken gzip: {reason(error)}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1:,} is not UTF-8; convert the file to UTF-8"
        raise DataError(f"{path}: {where}{hint(bytes(data[:BLOCK]))}") from None


def unequal_lines(
    source: str | Path, sources: int, target: str | Path, targets: int, how: str = "is the translation of"
) -> DataError:
    """Build the error for two files whose lines belong together and are not as many."""
    return DataError(
        f"{source} has {sources:,} line{'s' * (sources != 1)} and {target} has {targets:,}; expected the same number, "
        f"because line i of one {how} line i of the other"
    )


@runtime_checkable
class Stream(Bytes, Protocol):
    """A source of bytes that knows whether more are there."""

    def fileno(self) -> int: ...


def display_name(path: str | Path) -> str:
    """Name a file as messages do."""
    if isinstance(path, GivenText):
        return TEXT
    return "standard input" if str(path) == STANDARD else str(path)


def is_pipe(path: str | Path) -> bool:
    """Return whether it is there and cannot be read twice: standard input, a named pipe."""
    if isinstance(path, GivenText):
        return False
    return str(path) == STANDARD or (Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir())


def count_lines(path: str | Path, *, replace: bool = False) -> int:
    """The lines of a file, all of them looked at: what cannot be read is known before any work is done."""
    return sum(map(len, read_chunks(path, replace=replace)))


def check_unchanged(path: str | Path, before: int | None, lines: int) -> None:
    """Refuse a file that had another number of lines when they were counted."""
    if before is not None and lines != before:
        raise DataError(f"{path}: changed while it was read: it had {before:,} lines, and then {lines:,}")


def read_chunks(
    path: str | Path, size: int = CHUNK, say: Say = ignore, *, replace: bool = False
) -> Iterator[list[str]]:
    """The lines of a file or, for "-", of standard input: those that are there, `size` at most, one at least.

    A DataError names the line that is not UTF-8 text; the lines before it are given first. With `replace` odd bytes are
    read as �. `say` is told at the end how many lines had some, and how many were cut.
    """
    if isinstance(path, GivenText):
        given = io.BytesIO(path.encode(errors="surrogateescape") or b"\n")
        yield from gather_chunks(given, TEXT, size, say, replace=replace)
        return
    if str(path) == STANDARD:
        if sys.stdin is None:
            raise CommandError("standard input: closed, expected lines of text or a file's name")
        source = cast(Stream, sys.stdin.buffer)
        yield from gather_chunks(source, "standard input", size, say, encoding_of(path), replace=replace)
        return
    if Path(path).is_dir():
        raise DataError(f"{path}: a folder given, expected a file")
    try:
        with open(path, "rb") as stream:
            table = is_csv(path)
            yield from gather_chunks(stream, str(path), size, say, encoding_of(path), table=table, replace=replace)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def gather_chunks(
    stream: Stream,
    name: str,
    size: int,
    say: Say = ignore,
    encoding: str | None = None,
    *,
    table: bool = False,
    replace: bool = False,
) -> Iterator[list[str]]:
    """Yield as many lines at a time as can be had without waiting; of a `table`, a CSV, each record is one of a TSV."""
    lines: list[str] = []
    characters = 0
    blocks = read_lines(stream, name, say, encoding, replace=replace)
    if table:
        blocks = ([row] for _, row in csv_rows(itertools.chain.from_iterable(blocks), name))
    try:
        for more in blocks:
            lines += more
            characters += sum(map(len, more))
            while len(lines) >= size:
                yield lines[:size]
                lines = lines[size:]
                characters = sum(map(len, lines))
            if lines and (characters >= CHARACTERS or not is_ready(stream)):
                yield lines
                lines, characters = [], 0
    except DataError:
        if lines:
            yield lines
        raise
    if lines:
        yield lines


def is_ready(stream: Stream) -> bool:
    """Return whether reading on would not have to wait."""
    try:
        number = stream.fileno()
    except io.UnsupportedOperation:  # it is all in memory
        return True
    try:
        return bool(select.select([number], [], [], 0)[0])
    except (OSError, ValueError):  # a system that can only ask this of sockets
        return False
