"""Streams of (source, target) pairs, with or without word links, from text, TSV, CSV and JSON lines, gzip or not.

`TableTexts` reads only the texts of a table, for commands that need no labels or other side. `regard.io.lines` defines
what a line is and how long it may be. Corpora are read line by line and never held in memory. An invalid line of a TSV
or of JSON lines counts as blank, so that the other lines keep their places; a reader reports once how many there are,
with the problem of the first.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from regard.data.settings import TABLES, Column, CorpusSettings, DataSettings
from regard.errors import DataError
from regard.io import (
    MAX_LINE_CHARACTERS,
    GivenText,
    LinePairs,
    Say,
    encoding_of,
    ignore,
    open_file,
    read_lines,
    text_lines,
    unequal_lines,
)

T = TypeVar("T")
Side = Literal["source", "target"]
KEYS: tuple[Column, ...] = ("source_column", "target_column", "alignment_column")
OTHER_SIDE = {"source": "translations", "target": "sources"}


def pairs(corpus: CorpusSettings, *, labelled: bool = False, say: Say = ignore) -> Iterator[tuple[str, str]]:
    """Yield every pair of a corpus in order, without white space at the ends; a blank side is an empty text.

    With `labelled`, the target is a label, which may be a number in JSON. At the end, `say` reports truncated lines,
    and invalid ones, which count as blank.
    """
    for source, target, *_ in rows(corpus, labelled, say=say):
        yield source.strip(), target.strip()


def read_linked(corpus: CorpusSettings, say: Say = ignore) -> Iterator[tuple[str, str, str]]:
    """Yield pairs, each with the text of its word links, which is empty if the corpus has none."""
    if corpus.alignment is None:
        for source, target, *more in rows(corpus, links=corpus.alignment_column is not None, say=say):
            yield source.strip(), target.strip(), "".join(more)
    else:
        first = str(corpus.source or corpus.file)
        firsts, seconds = pairs(corpus, say=say), lines(corpus.alignment, say)
        for (source, target), links in pair_lines(firsts, seconds, first, corpus.alignment, "is linked by"):
            yield source, target, links


def rows(
    corpus: CorpusSettings, labelled: bool = False, links: bool = False, say: Say = ignore
) -> Iterator[tuple[str, ...]]:
    """Yield source, target and, with `links`, the text of the links in the same file."""
    if corpus.form is None:
        one, two = corpus.source or "", corpus.target or ""  # an EncodedFile carries its encoding
        return pair_lines(lines(one, say), lines(two, say), one, two)
    path, places = corpus.file or "", KEYS if links else KEYS[:2]
    if corpus.form in (".csv", ".tsv"):
        names = (text_lines.name_column(getattr(corpus, each), each.removesuffix("_column")) for each in places)
        return named_columns(path, *names, say=say)
    return objects(path, *map(corpus.key, places), labelled=labelled, say=say)


def pair_lines(
    firsts: Iterator[T], seconds: Iterator[str], first: str, second: str, how: str = "is the translation of"
) -> Iterator[tuple[T, str]]:
    """Yield line i of one file with line i of the other; the names and `how` are for the message if they differ."""
    count = 0
    for each in firsts:
        other = next(seconds, None)
        if other is None:
            raise unequal_lines(first, count + 1 + sum(1 for _ in firsts), second, count, how)
        count += 1
        yield each, other
    extra = sum(1 for _ in seconds)
    if extra:
        raise unequal_lines(first, count, second, count + extra, how)


class BadRows:
    """A count of the unreadable rows of a file, with the problem of the first, for a single report."""

    def __init__(self, path: str | Path):
        self.path, self.count, self.good, self.first = path, 0, 0, ""

    def add(self, problem: str) -> None:
        """Count one more unreadable row; `problem` says where it is and what is wrong."""
        self.count += 1
        self.first = self.first or problem

    def end(self, say: Say, many: str, one: str | None = None) -> None:
        """Report the rows, as their number and `many`, or as `one`; raise a DataError if no row can be read."""
        if self.count and not self.good:
            raise DataError(f"{self.path}, {self.first}")
        if self.count:
            what = one if self.count == 1 and one else f"{self.count:,} {many}; the first is"
            say(f"{self.path}: {what} {self.first}")


BLANK = "lines that cannot be read count as blank", "a line that cannot be read counts as blank:"  # plural, singular


def named_columns(path: str | Path, *names: str | int, say: Say = ignore) -> Iterator[tuple[str, ...]]:
    """Yield some columns of a table, by their names in its header or by their numbers.

    A TSV has no header, so names stand for the usual positions of such columns; its quotation marks are ordinary
    characters. A blank line stays blank.
    """
    numbers, header = find_columns(path, *names)
    least, bad = max(numbers), BadRows(path)
    for number, line in numbered_lines(path, say, header):
        cells = line.split("\t")
        if len(cells) >= least:
            bad.good += 1
            yield tuple(cells[column - 1] for column in numbers)
            continue
        if line.strip():
            bad.add(f"line {number:,}: {len(cells)} column{'s' * (len(cells) != 1)}, expected at least {least}")
        yield tuple("" for _ in numbers)
    bad.end(say, *BLANK)


def find_columns(path: str | Path, *names: str | int) -> tuple[list[int], bool]:
    """Return the numbers of columns, from 1, and whether the first row of the table is a header."""
    cells, header = list[str](), False
    if text_lines.is_csv(path):
        cells, header = text_lines.find_header(physical_lines(path, ignore), str(path))
    found = [text_lines.locate_column(cells, header, name, str(path)) for name in names]
    return [number for number, _ in found], any(header for _, header in found)


def objects(path: str | Path, *keys: str, labelled: bool = False, say: Say = ignore) -> Iterator[tuple[str, ...]]:
    """Yield the values of some keys of one JSON object per line; with `labelled`, the second is a label.

    A blank line stays blank.
    """
    bad = BadRows(path)
    for number, line in enumerate(lines(path, say), 1):
        fields = tuple("" for _ in keys)
        if line.strip():
            try:
                row = parse_line(line)
                fields = tuple(field(row, key, labelled and i == 1) for i, key in enumerate(keys))
                bad.good += 1
            except DataError as error:
                bad.add(f"line {number:,}: {error}")
        yield fields
    bad.end(say, *BLANK)


def parse_line(line: str) -> Any:
    """Parse a line of JSON; raise a DataError if it is invalid."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # an integer with thousands of digits raises ValueError, too
        if len(line) == MAX_LINE_CHARACTERS:
            raise DataError(f"more than {MAX_LINE_CHARACTERS:,} characters, too long for JSON") from None
        whole = " (a file with one JSON list is not supported; write one object per line)" if line[0] == "[" else ""
        raise DataError(f"not valid JSON: {error}{whole}") from None


def field(row: Any, key: str, label: bool = False) -> str:
    """Return the text under a key; if there is no such key, dots in it lead into nested objects."""
    if not isinstance(row, dict):
        raise DataError(f"{json.dumps(row)[:40]} given, expected a JSON object")
    value: Any = row
    for part in [key] if key in row else key.split("."):
        if not isinstance(value, dict) or part not in value:
            raise DataError(f"no key {key!r}; it has {', '.join(map(repr, row)) or 'none'}")
        value = value[part]
    if label and isinstance(value, int | None):  # bool is a subclass of int
        return "" if value is None else json.dumps(value)
    if not isinstance(value, str):
        raise DataError(f"{json.dumps(value)[:40]} given under {key!r}, expected a text")
    if "\0" in value:
        raise DataError(f"NUL under {key!r}, as in binary files; expected text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"half a surrogate pair under {key!r}, which is not a character") from None
    return value.replace("\n", " ")


def lines(path: str | Path, say: Say = ignore) -> Iterator[str]:
    """Yield the lines of a text file, gzip or not, without newlines; a DataError names the file and the line.

    The records of a CSV become lines of a TSV, without the header.
    """
    return (line for _, line in numbered_lines(path, say))


def numbered_lines(path: str | Path, say: Say = ignore, header: bool | None = None) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers in the file; a record of a CSV has the number of its first line."""
    stream = physical_lines(path, say)
    return text_lines.csv_rows(stream, str(path), header) if text_lines.is_csv(path) else enumerate(stream, 1)


def physical_lines(path: str | Path, say: Say) -> Iterator[str]:
    """Yield the lines of a file without parsing CSV."""
    with open_file(path) as file:
        for chunk in read_lines(file, str(path), say, encoding_of(path)):
            yield from chunk


# ---- texts in a table


class TableTexts:
    """A function from lines of a table to their texts; a TSV or CSV row with a single cell is the text itself.

    It reads the column or key that the run was trained on. The default for documents is the second column of a TSV or
    the key "text" of JSON lines; for sources of pairs, the first column or the key "source"; for targets, the second
    column or the key "target". An unreadable line gives an empty text; `say` reports the first.
    """

    def __init__(self, path: str, corpus: CorpusSettings, say: Say, side: Side = "source"):
        self.path, self.corpus, self.say = path, corpus, say
        which: Column = "source_column" if side == "source" else "target_column"
        self.column: str | int = corpus.key(which)
        if corpus.form in (".csv", ".tsv"):  # rows of a CSV are read as rows of a TSV
            (self.column,), _ = find_columns(path, text_lines.name_column(getattr(corpus, which), side))
        self.count, self.unreadable = 0, False

    @classmethod
    def of(cls, path: str, data: DataSettings | None, say: Say, side: Side = "source") -> "TableTexts | None":
        """Return a reader if the file's name is that of a table, and report the column; None for any other file.

        `data` has the columns that the run was trained on; `side` is the side of a pair to read.
        """
        if isinstance(path, GivenText) or text_lines.ending(path) not in TABLES:
            return None
        labelled = data is not None and data.reads == "documents"
        if data is not None and labelled:  # use the columns of the training file
            alike = are_alike(path, data.documents or "")  # columns have numbers, keys have names
            corpus = (data if alike else replace(data, text_column=None, label_column=None)).labelled(path)
        else:  # use the columns of the first training file of this format
            others = (each for each in (data.corpora if data else ()) if each.file and are_alike(path, each.file))
            first = next(others, CorpusSettings(file=path))
            corpus = CorpusSettings(file=path, source_column=first.source_column, target_column=first.target_column)
        texts = cls(path, corpus, say, side)
        place = f"column {texts.column}" if corpus.form in (".tsv", ".csv") else f"the key {texts.column!r}"
        what, rest = ("documents", "labels") if labelled else (f"{side}s", OTHER_SIDE[side])
        say(f"{path}: reading the {what} in {place}; {rest} are ignored")
        return texts

    def __call__(self, lines: Sequence[str]) -> list[str]:
        """Return the text of each line."""
        return [self.read(line) for line in lines]

    def read(self, line: str) -> str:
        """Return the text of the next line."""
        self.count += 1
        if not line.strip():
            return ""
        try:
            if not isinstance(self.column, int):
                return field(parse_line(line), self.column)
            cells = line.split("\t")
            if len(cells) > 1 and len(cells) < self.column:
                raise DataError(f"{len(cells)} columns, expected at least {self.column}")
            return cells[self.column - 1] if len(cells) > 1 else line
        except DataError as error:
            if not self.unreadable:
                self.say(f"{self.path}, line {self.count:,}: {error}")
            self.unreadable = True
            return ""


def read_tables(pairs: LinePairs, data: DataSettings | None, say: Say) -> None:
    """Make `pairs` read its texts from table columns, for files that are tables."""
    if pairs.source is not None:
        pairs.source_texts = TableTexts.of(pairs.source, data, say) or list
    pairs.target_texts = TableTexts.of(pairs.target, data, say, "target") or list


def are_alike(path: str, other: str) -> bool:
    """Return whether two tables identify columns in the same way: both are TSV, CSV or JSON."""
    endings = map(text_lines.ending, (path, other))
    return len({each if each in (".tsv", ".csv") else ".json" for each in endings}) == 1
