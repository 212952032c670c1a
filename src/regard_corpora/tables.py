"""Readers of the corpora's lexicons, TOML files next to the grammars that use them.

A table whose entries have columns is a text with one line per entry, and `|` between columns.
"""

import functools
import tomllib
from pathlib import Path
from typing import Any


@functools.cache
def read(name: str) -> dict[str, Any]:
    """Read a TOML file of this package."""
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


def lines(text: str) -> tuple[str, ...]:
    """Split a text into lines without the white space around them."""
    return tuple(line.strip() for line in text.strip().splitlines())


def rows(text: str) -> list[list[str]]:
    """Split a text into rows and columns."""
    return [[cell.strip() for cell in line.split("|")] for line in lines(text)]
