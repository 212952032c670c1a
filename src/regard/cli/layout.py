"""Layout of text for a terminal: lines that break between words, and columns that fit the window."""

import os
import re
import textwrap
from collections.abc import Sequence
from typing import IO

GAP = 2  # spaces between two columns
PIECE = re.compile(r"\S+?\||\S+")  # what stays on one line: a word, or a part of a metric's signature


def terminal_width(stream: IO[str]) -> int | None:
    """Return the columns of the terminal that a stream writes to; None for a file or a pipe, where lines stay whole."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):  # a stream without a file, or one that is closed
        return None


def wrap(text: str, width: int | None, indent: int = 0) -> str:
    """Break a line between words where it is wider than the terminal; further lines are indented."""
    if width is None or len(text) <= width:
        return text
    wrapper = textwrap.TextWrapper(
        width,
        subsequent_indent=" " * indent,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(wrapper.wrap(text))


def wrap_cell(text: str, width: int) -> list[str]:
    """Break the text of a cell into lines of at most `width`, between words or behind the bars of a signature."""
    lines, start, end = list[str](), 0, 0
    for piece in PIECE.finditer(text):
        if piece.end() - start > width and end > start:
            lines.append(text[start:end])
            start = piece.start()
        end = piece.end()
    return [*lines, text[start:end]]


def fit_columns(columns: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """Choose the width of each column: as wide as its widest cell, or narrower, the widest first, to fit the terminal.

    No column is narrower than its longest word: what does not fit then is broken by the terminal.
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
