"""The command line: `main`, one file per command in `commands/`, and code that several commands share."""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.cli.program import SECTIONS, app, main

__all__ = [
    "SECTIONS",
    "app",
    "main",
]

__getattr__, __dir__ = door(__name__)
