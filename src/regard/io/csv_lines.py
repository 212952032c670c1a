"""CSV read as the lines of a TSV: what reads tab-separated values reads comma-separated ones, too.

A record may take several lines, as a quoted text may hold line breaks; each becomes a space, and so does a tab. The
separator is a comma, or a semicolon where the first line has no comma outside quotation marks. A first record of names,
such as source,target or label,text or en,de, is a header: it is not a row, and columns are found by it.
"""

import csv
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from regard.errors import DataError
from regard.io.reading import read_facts

FIELD = 1_000_000  # characters of a text
BREAKS = re.compile(r"[\t\r\n]+")
QUOTED = re.compile(r'"(?:[^"]|"")*(?:"|$)')
NUMBERS = {"source": 1, "target": 2, "alignment": 3, "label": 1, "text": 2, "picture": 1, "caption": 2}
NUMBERS["picture label"] = 2
HEADERS = read_facts("regard.io", "headers.toml")
ALIASES = {column: words.split() for column, words in HEADERS["columns"].items()}  # what else a header calls a column
WORDS = {*itertools.chain(*ALIASES.values()), *HEADERS["others"].split()}
CODES = frozenset(HEADERS["languages"].split())


def ending(path: str | Path) -> str:
    """Return the ending of a file's name, without that of gzip."""
    return Path(str(path).removesuffix(".gz")).suffix.lower()


def is_csv(path: str | Path) -> bool:
    """Return whether a file is a CSV by its name."""
    return ending(path) == ".csv"


def csv_rows(lines: Iterable[str], name: str, header: bool | None = None) -> Iterator[tuple[int, str]]:
    """Yield each record as a line of a TSV, with the number of its first line in the file, from 1.

    `header` says whether the first record is one; by default its words do. A DataError names the line where quotation
    marks do not fit.
    """
    for place, (number, cells) in enumerate(records(lines, name)):
        if place == 0 and (is_header(cells) if header is None else header):
            continue
        yield number, "\t".join(BREAKS.sub(" ", cell) for cell in cells)


def records(lines: Iterable[str], name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record, with the number of its first line; a blank line is a record without cells."""
    if csv.field_size_limit() < FIELD:  # of the whole process, and never lowered
        csv.field_size_limit(FIELD)
    rest = iter(lines)
    first = next(rest, None)
    if first is None:
        return
    reader = csv.reader(
        (f"{line}\n" for line in itertools.chain((first,), rest)), delimiter=separator_of(first), strict=True
    )
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{name}, line {number:,}: {describe(str(error))}") from None
        yield number, cells


def describe(problem: str) -> str:
    """Describe what the parser found in words for people."""
    if "unexpected end" in problem:
        return "a quotation mark that opens a text here is not closed"
    if "expected after" in problem:
        return 'text behind a closing quotation mark; inside of a quoted text, write each quotation mark twice ("")'
    if "field limit" in problem:
        return f"a text of more than {FIELD:,} characters, or a quotation mark that is not closed"
    return f"not valid CSV: {problem}"


def separator_of(line: str) -> str:
    """Return what separates the cells of a first line."""
    outside = QUOTED.sub("", line)
    if ";" in outside and ("," not in outside or is_header(outside.split(";"))):
        return ";"
    return ","


def is_header(cells: list[str]) -> bool:
    """Return whether the first record names columns: two of the words that do or of languages, or one that is alone."""
    names = [cell.strip().casefold() for cell in cells]
    if not all(names) or len({*names}) < len(names) or max(map(len, names), default=99) > 30:
        return False
    needed = min(2, len(names))
    return sum(name in WORDS for name in names) >= needed or sum(name in CODES for name in names) >= needed


def find_header(lines: Iterable[str], name: str) -> tuple[list[str], bool]:
    """Return the cells of the first record, and whether it is a header."""
    _, cells = next(records(lines, name), (1, list[str]()))
    return cells, is_header(cells)


def name_column(value: str | int | None, default: str) -> str | int:
    """Return the name of a column, or its number where a number is given."""
    if value is None:
        return default
    return int(value) if isinstance(value, int) or value.isdecimal() else value


def locate_column(cells: list[str], header: bool, column: str | int, name: str) -> tuple[int, bool]:
    """Return the number of a column, from 1, by the first record; and whether that is a header."""
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
