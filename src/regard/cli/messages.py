"""Printing for commands: tables and reports, messages and bars on standard error, mistakes in one sentence."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from typer.core import TyperGroup

from regard.config import visible
from regard.errors import RegardError

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


class CommandGroup(TyperGroup):
    """A group of commands that answers a mistake with one sentence: what is wrong, and where to read more."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run as any group does, but print a mistake in one sentence."""
        options: dict[str, Any] = {"args": args, "prog_name": prog_name, "complete_var": complete_var, **extra}
        options |= {"standalone_mode": False, "windows_expand_args": windows_expand_args}
        if not standalone_mode:
            return super().main(**options)
        try:
            status = super().main(**options)
        except RegardError as error:
            print_message(shorten(str(error)))
            sys.exit(2)
        except Exception as error:  # what typer raises has another home in each of its versions
            if not hasattr(error, "format_message"):
                raise
            print_message(describe_mistake(error))
            sys.exit(2)
        sys.exit(status if isinstance(status, int) else 0)


def describe_mistake(error: Any) -> str:
    """Describe a mistake in one line: the flag and what is wrong with it, or else where to read more."""
    flag = next((name for name in getattr(getattr(error, "param", None), "opts", ()) if name.startswith("-")), None)
    if flag is not None and error.message:
        return shorten(f"{flag}: {error.message}")
    text = shorten(error.format_message().strip().rstrip("."))
    path = getattr(getattr(error, "ctx", None), "command_path", "regard")
    return f"{text[:1].lower()}{text[1:]}; see {path} --help"


def shorten(text: str) -> str:
    """Shorten a message to a line that can be read whole: what was typed, or a file's name, may be very long."""
    return visible(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}")
