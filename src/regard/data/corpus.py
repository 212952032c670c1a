"""Parallel corpora as streams of (source, target), or with word links beside them: text, TSV and JSON lines, or gzip.

A line ends at a line feed, with or without a carriage return before it, and nowhere else: U+2028 and its like are
characters. Whether a file is gzip is told by its first bytes. Nothing is held but the line at hand.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from regard.data.settings import CorpusSettings
from regard.errors import DataError

__all__ = ["lines", "linked", "pairs"]

T = TypeVar("T")
GZIP = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def pairs(corpus: CorpusSettings, *, labelled: bool = False) -> Iterator[tuple[str, str]]:
    """Every pair of a corpus, in its order, without white space at the ends; a blank side is an empty text.

    `labelled`: the target is a label, which a JSON object may have as a number.
    """
    for source, target, *_ in rows(corpus, labelled):
        yield source.strip(), target.strip()


def linked(corpus: CorpusSettings) -> Iterator[tuple[str, str, str]]:
    """The same with the text of each pair's word links; empty where the corpus has none."""
    if corpus.alignment_column is not None:
        for source, target, links in rows(corpus, links=True):
            yield source.strip(), target.strip(), links
    elif corpus.alignment is None:
        for source, target in pairs(corpus):
            yield source, target, ""
    else:
        first = str(corpus.source or corpus.file)
        stream = beside(pairs(corpus), lines(corpus.alignment), first, corpus.alignment, "is linked by")
        for (source, target), links in stream:
            yield source, target, links


def rows(corpus: CorpusSettings, labelled: bool = False, links: bool = False) -> Iterator[tuple[str, ...]]:
    """Source, target and, with `links`, the links that stand in the same file."""
    if corpus.form is None:
        return beside(lines(str(corpus.source)), lines(str(corpus.target)), str(corpus.source), str(corpus.target))
    if corpus.form == ".tsv":
        numbers = [corpus.column("source_column"), corpus.column("target_column")]
        return columns(str(corpus.file), *numbers, *([corpus.column("alignment_column")] if links else []))
    keys = [corpus.key("source_column"), corpus.key("target_column")]
    return objects(str(corpus.file), *keys, *([corpus.key("alignment_column")] if links else []), labelled=labelled)


def beside(
    firsts: Iterator[T], seconds: Iterator[str], first: str, second: str, how: str = "is the translation of"
) -> Iterator[tuple[T, str]]:
    """Line i of one file with line i of the other; the names, and `how` lines belong together, are for a message."""
    count = 0
    for each in firsts:
        other = next(seconds, None)
        if other is None:
            raise unequal(first, count + 1 + sum(1 for _ in firsts), second, count, how)
        count += 1
        yield each, other
    extra = sum(1 for _ in seconds)
    if extra:
        raise unequal(first, count, second, count + extra, how)


def unequal(
    source: str | Path, sources: int, target: str | Path, targets: int, how: str = "is the translation of"
) -> DataError:
    return DataError(
        f"{source} has {sources:,} line{'s' * (sources != 1)} and {target} has {targets:,}; expected as many in both, "
        f"as line i of one {how} line i of the other"
    )


def columns(path: str | Path, *wanted: int) -> Iterator[tuple[str, ...]]:
    """Some columns of a file of tab-separated values, counted from 1. Quotes mean nothing. A blank line is blank."""
    least = max(wanted)
    for number, line in enumerate(lines(path), 1):
        cells = line.split("\t")
        if len(cells) < least:
            if line.strip():
                raise DataError(f"{path}, line {number:,}: {len(cells)} columns, expected at least {least}")
            yield tuple("" for _ in wanted)
        else:
            yield tuple(cells[column - 1] for column in wanted)


def objects(path: str | Path, *wanted: str, labelled: bool = False) -> Iterator[tuple[str, ...]]:
    """Some keys of a file with a JSON object a line; `labelled`: the second is a label. A blank line is blank."""
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            yield tuple("" for _ in wanted)
            continue
        place = f"{path}, line {number:,}"
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            whole = " (a file that is one JSON list is not read; write an object a line)" if line[0] == "[" else ""
            raise DataError(f"{place}: not valid JSON: {error}{whole}") from None
        yield tuple(field(row, key, place, labelled and i == 1) for i, key in enumerate(wanted))


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
