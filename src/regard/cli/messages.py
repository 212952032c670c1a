"""Printing for commands: tables and reports, laid out for the terminal; messages and bars on standard error."""

import itertools
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, TypeVar

from regard.config import visible

if TYPE_CHECKING:
    from regard.tasks import evaluation

GAP = 2  # spaces between two columns
PIECE = re.compile(r"\S+?\||\S+")  # an unbreakable piece: a word, or a part of a metric's signature
T = TypeVar("T")
MAX_CHARACTERS = 2000  # characters of a message
NUMBER = re.compile(r"[+−]?[\d.,]+%?|inf")


def terminal_width(stream: IO[str]) -> int | None:
    """Return the width of a stream's terminal in columns; None for a file or a pipe, whose lines are not wrapped."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):  # the stream has no file, or is closed
        return None


def wrap(text: str, width: int | None, indent: int = 0) -> str:
    """Wrap a line between words if it is wider than the terminal; indent further lines."""
    if width is None or len(text) <= width:
        return text
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent=" " * indent, replace_whitespace=False, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapper.wrap(text))


def wrap_cell(text: str, width: int) -> list[str]:
    """Wrap the text of a cell to `width`, between words or after the bars of a signature."""
    lines, start, end = list[str](), 0, 0
    for piece in PIECE.finditer(text):
        if piece.end() - start > width and end > start:
            lines.append(text[start:end])
            start = piece.start()
        end = piece.end()
    return [*lines, text[start:end]]


def fit_columns(columns: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """Choose the width of each column: that of its widest cell; the widest columns shrink first to fit the terminal.

    No column is narrower than its longest word; the terminal breaks lines that do not fit then.
    """
    widths = [max(map(len, column)) for column in columns]
    if width is None:
        return widths
    least = [max((len(word) for cell in column for word in PIECE.findall(cell)), default=0) for column in columns]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        index = max(range(len(widths)), key=lambda each: (widths[each] > least[each], widths[each]))
        if widths[index] <= least[index]:
            break
        widths[index] -= 1
    return widths


def print_message(text: str) -> None:
    """Print one line on standard error, wrapped between words if the terminal is narrower."""
    print(wrap(f"regard: {text}", terminal_width(sys.stderr)), file=sys.stderr)


def print_table(
    head: Sequence[str] | None,
    rows: Sequence[Sequence[str]],
    *,
    numbers_right: bool = True,
    right: Sequence[bool] | None = None,
) -> None:
    """Print a table as plain text, with columns as wide as they need to be, and numbers aligned right.

    `right` names the columns to align right; by default their cells decide. In a narrower terminal, text cells are
    wrapped.
    """
    lines = [head, *rows] if head is not None else list(rows)
    if not lines:
        return
    columns = list(zip(*lines, strict=True))
    bodies = columns if head is None else [column[1:] for column in columns]
    if right is None:
        right = [numbers_right and all(NUMBER.fullmatch(cell) for cell in body) for body in bodies]
    widths = fit_columns(columns, terminal_width(sys.stdout))
    for row in lines:
        cells = [wrap_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            line = zip(parts, widths, right, strict=True)
            print("  ".join(part.rjust(size) if number else part.ljust(size) for part, size, number in line).rstrip())


def print_text(text: str, indent: int = 0) -> None:
    """Print a line on standard output, wrapped between words if the terminal is narrower."""
    print(wrap(text, terminal_width(sys.stdout), indent))


def print_report(report: "evaluation.EvaluationReport", as_json: bool) -> None:
    """Print a measurement, as text for people or as JSON."""
    if as_json:
        print(json.dumps(report.json, ensure_ascii=False, allow_nan=False))
        return
    print(report.heading)
    for table in report.tables:
        print()
        if table.title:
            print(table.title + "\n" * table.blank_line)
        print_table(table.columns, table.rows)


def show_progress(things: Iterable[T], count: int, what: str) -> Iterator[T]:
    """Yield things, with a progress bar on standard error if it is a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import track

    terminal = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    console = Console(stderr=True)
    yield from track(things, escape(what), count, console=console, transient=True, disable=not terminal)


def shorten(text: str) -> str:
    """Shorten a message to a readable length: typed arguments and file names may be very long."""
    half = MAX_CHARACTERS // 2
    return visible(text if len(text) <= MAX_CHARACTERS else f"{text[:half]}…{text[-half:]}")
