"""Decode lines of text from bytes, block by block: plain or gzip, from a file, a pipe or a device.

A line ends at a line feed, with or without a carriage return before it, and nowhere else: U+2028 and other Unicode
separators are ordinary characters. Text is UTF-8 without NUL, or in the encoding that an `EncodedFile` names. After
yielding the lines before an invalid one, a reader raises a DataError that names it; with `replace`, it reads invalid
bytes as � instead and reports once how many lines have some. A line is truncated while it is read, to
MAX_LINE_CHARACTERS characters, so memory stays bounded however long a line is and however well it compresses. A reader
reports once how many lines were truncated, with the number of the first.

`read_chunks` does not wait for more input than is available: a process that writes one line into a pipe gets its answer
before it writes the next, and a file still comes in chunks that fill a batch.

A CSV file is read as lines of a TSV. A quoted cell may contain line breaks, so a record may span several lines; line
breaks and tabs in a cell become spaces. The separator is a comma, or a semicolon if the first line has semicolons but
no comma outside quotation marks, or is a header with semicolons. A first record of names, such as source,target or
label,text or en,de, is a header: it is not a row, and columns are found by it.
"""

import contextlib
import csv
import io
import itertools
import re
import select
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from regard.errors import CommandError, DataError
from regard.io.encodings import encoding_of, hint, transcode
from regard.io.reading import read_facts

MAX_LINE_CHARACTERS = 1_000_000  # maximum characters of a line, far more than a sentence or a document has
KEPT = 4 * MAX_LINE_CHARACTERS  # maximum bytes of that many characters in UTF-8
BLOCK = 1 << 16  # bytes read, or decompressed, at a time
WHOLE = 1 << 29  # maximum bytes of a file that is read as one text
GZIP = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
UNZIPPED = 16 + zlib.MAX_WBITS  # zlib's `wbits` for data with a gzip header

Say = Callable[[str], None]
Stream = io.BufferedIOBase  # if its `fileno` raises io.UnsupportedOperation, all of it is in memory
CHUNK = 1024  # lines decoded together: enough to sort by length, few enough for results to appear soon
CHUNK_CUDA = 16 * CHUNK
CHARACTERS = 4_000_000  # characters after which a chunk is complete, however few its lines
STANDARD = "-"
TEXT = "the text"  # the name of a GivenText in messages


class GivenText(str):
    """A text given in place of a file name; its lines are read like those of a file."""

    __slots__ = ()


def ignore(text: str) -> None:
    """Drop a message, for callers that report it elsewhere."""


def check_file(path: str | Path) -> None:
    """Raise a DataError unless the path is a regular file; pipes and devices may never end, or cannot be read twice."""
    try:
        if not Path(path).exists():
            raise DataError(f"{path}: no such file")
        if Path(path).is_dir():
            raise DataError(f"{path}: a folder given, expected a file")
        if not Path(path).is_file():
            raise DataError(f"{path}: a pipe or a device given, expected a file, because it is read more than once")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


@contextlib.contextmanager
def open_file(path: str | Path) -> Iterator[io.BufferedReader]:
    """Open a file that is read more than once; raise a DataError if it is not a regular file or cannot be read."""
    check_file(path)
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_lines(
    stream: Stream, name: str, say: Say = ignore, encoding: str | None = None, *, replace: bool = False
) -> Iterator[list[str]]:
    """Yield for each block of bytes the lines that end in it, then the last line; messages call the stream `name`.

    `encoding` is the text's encoding if it is not UTF-8. With `replace`, bytes that are not UTF-8 are read as �.
    """
    number = cut = first_cut = 0
    odd = OddLines(name) if replace else None
    begun, length = bytearray(), 0  # the unfinished line: the bytes kept, and its length so far
    try:
        for block in transcode(decompress(stream), name, encoding):
            nul = block.find(b"\0")
            *ends, rest = (block if nul < 0 else block[:nul]).split(b"\n")
            lines: list[str] = []
            for part in ends:
                number += 1
                raw = begun + part[: KEPT - len(begun)] if begun else part
                try:
                    text, whole = decode_line(raw, length + len(part), f"{name}, line {number:,}", number, block, odd)
                except DataError:
                    yield lines
                    raise
                if not whole:
                    cut, first_cut = cut + 1, first_cut or number
                lines.append(text)
                begun, length = bytearray(), 0
            begun += rest[: KEPT - len(begun)]
            length += len(rest)
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
        say(f"{name}: line {first_cut:,} has more than {MAX_LINE_CHARACTERS:,} characters and was truncated")
    elif cut:
        cuts = f"lines have more than {MAX_LINE_CHARACTERS:,} characters and were truncated"
        say(f"{name}: {cut:,} {cuts}; the first is line {first_cut:,}")


@dataclass
class OddLines:
    """A count of the lines of a stream whose invalid UTF-8 bytes were replaced, with details of the first."""

    name: str
    count: int = 0
    first: str = ""
    sample: bytes = b""  # the first such line and its block, from which the encoding is guessed

    def replace(self, line: bytes | bytearray, number: int, place: int, block: bytes) -> str:
        """Decode a line with � in place of invalid bytes, of which the first is at index `place`."""
        if not self.count:
            self.sample = bytes(line[:BLOCK]) + block
            self.first = f"line {number:,}, byte {place + 1:,} (0x{line[place]:02x})"
        self.count += 1
        return line.decode(errors="replace")

    def describe(self) -> str:
        """Describe the lines in one sentence."""
        lines = "1 line has bytes that are" if self.count == 1 else f"{self.count:,} lines have bytes that are"
        first = self.first if self.count == 1 else f"the first is {self.first}"
        guess = "" if self.name == TEXT else hint(self.sample)  # no option sets the encoding of a typed text
        return f"{self.name}: {lines} not UTF-8 and were read as �: {first}; convert it to UTF-8{guess}"


def decode_line(
    raw: bytes | bytearray, length: int, place: str, number: int, block: bytes = b"", odd: OddLines | None = None
) -> tuple[str, bool]:
    """Decode a line of `length` bytes from its first bytes, `raw`; return the text, and whether it is complete.

    `block` is the block of bytes that contains the end of the line; it helps to guess another encoding.
    """
    check_utf16(raw, place, number)
    whole = length == len(raw)
    line = raw.removeprefix(UTF8_MARK) if number == 1 else raw
    line = line.removesuffix(b"\r") if whole else line
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        if not whole and error.start >= len(line) - 3:  # the line was truncated inside a character
            text = line[: error.start].decode()
        elif odd is not None:
            text = odd.replace(line, number, error.start, block)
        else:
            raise DataError(
                f"{place}: byte {error.start + 1:,} (0x{line[error.start]:02x}) is not UTF-8; convert the file to UTF-8"
                f"{hint(bytes(raw[:BLOCK]) + block)}"
            ) from None
    return text[:MAX_LINE_CHARACTERS], whole and len(text) <= MAX_LINE_CHARACTERS


def check_utf16(raw: bytes | bytearray, place: str, number: int) -> None:
    """Raise a DataError if the first line begins with a UTF-16 byte-order mark."""
    if number == 1 and raw.startswith(UTF16_MARKS):
        raise DataError(f"{place}: looks like UTF-16; convert the file to UTF-8, or add --encoding utf-16")


def decompress(stream: Stream) -> Iterator[bytes]:
    """Yield the bytes of a stream as they come, decompressed if it is gzip; raise zlib.error if the gzip is broken."""
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
        if member.eof:  # concatenated gzip files, or zero padding at the end
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
    """Return the text of a zlib error without its error number."""
    return str(error).rpartition("data: ")[2]


def read_whole(path: str | Path) -> str:
    """Read a file, plain or gzip, as one text."""
    data = bytearray()
    try:
        with open_file(path) as stream:
            for block in transcode(decompress(stream), str(path), encoding_of(path)):
                data += block
                if len(data) > WHOLE:
                    raise DataError(f"{path}: more than {WHOLE >> 20:,} MiB, too large to read as one text")
        return data.removeprefix(UTF8_MARK).decode()
    except zlib.error as error:
        raise DataError(f"{path}: broken gzip: {reason(error)}") from None
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1:,} is not UTF-8; convert the file to UTF-8"
        raise DataError(f"{path}: {where}{hint(bytes(data[:BLOCK]))}") from None


def unequal_lines(
    source: str | Path, sources: int, target: str | Path, targets: int, how: str = "is the translation of"
) -> DataError:
    """Build the error for two parallel files with different numbers of lines."""
    return DataError(
        f"{source} has {sources:,} line{'s' * (sources != 1)} and {target} has {targets:,}; expected the same number, "
        f"because line i of one {how} line i of the other"
    )


def display_name(path: str | Path) -> str:
    """Return the name of an input in messages."""
    if isinstance(path, GivenText):
        return TEXT
    return "standard input" if str(path) == STANDARD else str(path)


def is_pipe(path: str | Path) -> bool:
    """Return whether an input exists and cannot be read twice: standard input, a named pipe, a device."""
    if isinstance(path, GivenText):
        return False
    return str(path) == STANDARD or (Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir())


def count_lines(path: str | Path, *, replace: bool = False) -> int:
    """Count the lines of a file; this decodes them all, so errors show up before any work is done."""
    return sum(map(len, read_chunks(path, replace=replace)))


def check_unchanged(path: str | Path, before: int | None, lines: int) -> None:
    """Raise a DataError if a file's number of lines has changed since they were counted."""
    if before is not None and lines != before:
        raise DataError(f"{path}: changed while it was read: it had {before:,} lines, and then {lines:,}")


def read_chunks(
    path: str | Path, size: int = CHUNK, say: Say = ignore, *, replace: bool = False
) -> Iterator[list[str]]:
    """Yield chunks of lines of a file or, for "-", of standard input: the available lines, one to `size` of them.

    A line that is not valid text raises a DataError that names it, after the lines before it. With `replace`, invalid
    bytes are read as �. At the end, `say` reports how many lines had some, and how many were truncated.
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
    """Yield chunks of lines without waiting for more input; with `table` (CSV), each record becomes a line of a TSV."""
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
    """Return whether a read would not block."""
    try:
        number = stream.fileno()
    except io.UnsupportedOperation:  # the stream is in memory
        return True
    try:
        return bool(select.select([number], [], [], 0)[0])
    except (OSError, ValueError):  # a system where `select` only works on sockets
        return False


# ---- CSV as lines of a TSV


FIELD = 1_000_000  # maximum characters of a cell
BREAKS = re.compile(r"[\t\r\n]+")
QUOTED = re.compile(r'"(?:[^"]|"")*(?:"|$)')
NUMBERS = {"source": 1, "target": 2, "alignment": 3, "label": 1, "text": 2, "picture": 1, "caption": 2}
NUMBERS["picture label"] = 2
HEADERS = read_facts("regard.io", "headers.toml")
ALIASES = {column: words.split() for column, words in HEADERS["columns"].items()}  # other names of a column in headers
WORDS = {*itertools.chain(*ALIASES.values()), *HEADERS["others"].split()}
CODES = frozenset(HEADERS["languages"].split())


def ending(path: str | Path) -> str:
    """Return the lower-case suffix of a file name, ignoring .gz."""
    return Path(str(path).removesuffix(".gz")).suffix.lower()


def is_csv(path: str | Path) -> bool:
    """Return whether a file's name is that of a CSV file."""
    return ending(path) == ".csv"


def csv_rows(lines: Iterable[str], name: str, header: bool | None = None) -> Iterator[tuple[int, str]]:
    """Yield each record as a line of a TSV, with the number of its first line in the file, from 1.

    `header` says whether the first record is a header; by default `is_header` decides. Unbalanced quotation marks raise
    a DataError that names the line.
    """
    for place, (number, cells) in enumerate(records(lines, name)):
        if place == 0 and (is_header(cells) if header is None else header):
            continue
        yield number, "\t".join(BREAKS.sub(" ", cell) for cell in cells)


def records(lines: Iterable[str], name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record, with the number of its first line; a blank line is a record without cells."""
    if csv.field_size_limit() < FIELD:  # this limit holds for the whole process; never lower it
        csv.field_size_limit(FIELD)
    rest = iter(lines)
    first = next(rest, None)
    if first is None:
        return
    outside = QUOTED.sub("", first)
    semicolons = ";" in outside and ("," not in outside or is_header(outside.split(";")))
    whole = (f"{line}\n" for line in itertools.chain((first,), rest))
    reader = csv.reader(whole, delimiter=";" if semicolons else ",", strict=True)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = next((words for part, words in BAD_CSV.items() if part in str(error)), f"not valid CSV: {error}")
            raise DataError(f"{name}, line {number:,}: {problem}") from None
        yield number, cells


BAD_CSV = {  # parts of the parser's messages, and clearer messages
    "unexpected end": "a quotation mark that opens a text here is not closed",
    "expected after": "text behind a closing quotation mark; "
    'inside of a quoted text, write each quotation mark twice ("")',
    "field limit": f"a text of more than {FIELD:,} characters, or a quotation mark that is not closed",
}


def is_header(cells: list[str]) -> bool:
    """Return whether a first record is a header: two cells (or its only cell) are column words or language codes."""
    names = [cell.strip().casefold() for cell in cells]
    if not all(names) or len({*names}) < len(names) or max(map(len, names), default=99) > 30:
        return False
    needed = min(2, len(names))
    return sum(name in WORDS for name in names) >= needed or sum(name in CODES for name in names) >= needed


def find_header(lines: Iterable[str], name: str) -> tuple[list[str], bool]:
    """Return the cells of the first record and whether it is a header."""
    _, cells = next(records(lines, name), (1, list[str]()))
    return cells, is_header(cells)


def name_column(value: str | int | None, default: str) -> str | int:
    """Return a column's name, or its number if the value is a number; `default` if the value is None."""
    if value is None:
        return default
    return int(value) if isinstance(value, int) or value.isdecimal() else value


def locate_column(cells: list[str], header: bool, column: str | int, name: str) -> tuple[int, bool]:
    """Find a column in the first record; return its number, from 1, and whether that record is a header."""
    if isinstance(column, int):
        return column, header
    names = [cell.strip().casefold() for cell in cells]
    wanted = column.strip().casefold()
    for alias in (wanted, *ALIASES.get(wanted, ())) if header or wanted not in NUMBERS else ():
        if alias in names:
            return names.index(alias) + 1, True
    if wanted in NUMBERS:
        return NUMBERS[wanted], header
    raise DataError(f"{name}, line 1: no column {column!r}; it has {', '.join(map(repr, cells)) or 'none'}")
