"""Parallel corpora as streams of (source, target): text files, TSV and JSON lines, gzip or not.

A line ends at a line feed, with or without a carriage return before it, and nowhere else: U+2028 and its like are
characters. Whether a file is gzip is told by its first bytes. Nothing is held but the line at hand.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.data.settings import CorpusSettings
from regard.errors import DataError

__all__ = ["lines", "pairs"]

GZIP = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def pairs(corpus: CorpusSettings, *, labelled: bool = False) -> Iterator[tuple[str, str]]:
    """Every pair of a corpus, in its order, without white space at the ends; a blank side is an empty text.

    `labelled`: the target is a label, which a JSON object may have as a number.
    """
    if corpus.form is None:
        stream = text_pairs(str(corpus.source), str(corpus.target))
    elif corpus.form == ".tsv":
        stream = columns(str(corpus.file), corpus.column("source_column"), corpus.column("target_column"))
    else:
        stream = objects(str(corpus.file), corpus.key("source_column"), corpus.key("target_column"), labelled)
    for source, target in stream:
        yield source.strip(), target.strip()


def text_pairs(source: str | Path, target: str | Path) -> Iterator[tuple[str, str]]:
    """Line i of one file with line i of the other."""
    count, sources, targets = 0, lines(source), lines(target)
    for text in sources:
        translation = next(targets, None)
        if translation is None:
            raise unequal(source, count + 1 + sum(1 for _ in sources), target, count)
        count += 1
        yield text, translation
    extra = sum(1 for _ in targets)
    if extra:
        raise unequal(source, count, target, count + extra)


def unequal(source: str | Path, sources: int, target: str | Path, targets: int) -> DataError:
    return DataError(
        f"{source} has {sources:,} line{'s' * (sources != 1)} and {target} has {targets:,}; expected as many in both, "
        "as line i of one is the translation of line i of the other"
    )


def columns(path: str | Path, source: int, target: int) -> Iterator[tuple[str, str]]:
    """Two columns of a file of tab-separated values, counted from 1. Quotes mean nothing. A blank line is blank."""
    least = max(source, target)
    for number, line in enumerate(lines(path), 1):
        cells = line.split("\t")
        if len(cells) < least:
            if line.strip():
                raise DataError(f"{path}, line {number:,}: {len(cells)} columns, expected at least {least}")
            yield "", ""
        else:
            yield cells[source - 1], cells[target - 1]


def objects(path: str | Path, source: str, target: str, labelled: bool = False) -> Iterator[tuple[str, str]]:
    """Two keys of a file with a JSON object a line. A blank line is blank."""
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            yield "", ""
            continue
        place = f"{path}, line {number:,}"
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            whole = " (a file that is one JSON list is not read; write an object a line)" if line[0] == "[" else ""
            raise DataError(f"{place}: not valid JSON: {error}{whole}") from None
        yield field(row, source, place), field(row, target, place, labelled)


def field(row: Any, key: str, place: str, label: bool = False) -> str:
    """The text under a key; dots lead into objects where the key itself is not there."""
    if not isinstance(row, dict):
        raise DataError(f"{place}: {type(row).__name__} given, expected a JSON object")
    value: Any = row
    for part in [key] if key in row else key.split("."):
        if not isinstance(value, dict) or part not in value:
            raise DataError(f"{place}: no key {key!r}; there is {', '.join(map(repr, row)) or 'none'}")
        value = value[part]
    if label and isinstance(value, int | None):  # true and false are, too
        return "" if value is None else json.dumps(value)
    if not isinstance(value, str):
        raise DataError(f"{place}: {type(value).__name__} given under {key!r}, expected a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"{place}: half a surrogate pair under {key!r}, which is no character") from None
    return value.replace("\n", " ")


def lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, gzip or not, without their ends; a DataError names the file and the line."""
    number = 0
    try:
        with opened(path) as file:
            for number, raw in enumerate(file, 1):
                if number == 1:
                    raw = raw.removeprefix(UTF8_MARK)
                line = raw.removesuffix(b"\n").removesuffix(b"\r")
                try:
                    yield line.decode()
                except UnicodeDecodeError as error:
                    sixteen = " (it looks like UTF-16)" if number == 1 and raw[:2] in UTF16_MARKS else ""
                    raise DataError(
                        f"{path}, line {number:,}: byte {error.start + 1:,} (0x{line[error.start]:02x}) is not "
                        f"UTF-8{sixteen}; convert the file to UTF-8"
                    ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: broken gzip after line {number:,}: {str(error).rstrip('.')}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def opened(path: str | Path) -> io.BufferedReader:
    """The bytes of a file, unpacked where they are gzip."""
    if not Path(path).exists():
        raise DataError(f"{path}: no such file")
    if Path(path).is_dir():
        raise DataError(f"{path}: a folder given, expected a file")
    if not Path(path).is_file():
        raise DataError(f"{path}: a pipe or a device given, expected a file, as it is read more than once")
    with open(path, "rb") as file:
        packed = file.read(2) == GZIP
    # A buffer around GzipFile's own lets lines be split in C.
    return io.BufferedReader(gzip.open(path) if packed else io.FileIO(path), 1 << 20)
