"""Printing for commands: tables and reports; messages and bars on standard error."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from regard.config import visible

if TYPE_CHECKING:
    from regard.tasks.evaluation import EvaluationReport

T = TypeVar("T")
LONGEST = 2000  # characters of a message
NUMBER = re.compile(r"[+−]?[\d.,]+%?|inf")


def print_message(text: str) -> None:
    """Print one line on standard error."""
    print(f"regard: {text}", file=sys.stderr)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers_right: bool = True) -> None:
    """Print a table as plain text: columns as wide as they need to be, those of numbers to the right."""
    columns = [[row[index] for row in rows] for index in range(len(head))]
    right = [numbers_right and all(NUMBER.fullmatch(cell) for cell in column) for column in columns]
    widths = [max(map(len, (name, *column))) for name, column in zip(head, columns, strict=True)]
    for row in (head, *rows):
        cells = zip(row, widths, right, strict=True)
        print("  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in cells).rstrip())


def print_report(report: "EvaluationReport", as_json: bool) -> None:
    """Print a measurement for people or for programs."""
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
    """Pass things on, with a bar on standard error while they come, where that is a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import track

    terminal = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    console = Console(stderr=True)
    yield from track(things, escape(what), count, console=console, transient=True, disable=not terminal)


def shorten(text: str) -> str:
    """Shorten a message to a line that can be read whole: what was typed, or a file's name, may be very long."""
    return visible(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}")
