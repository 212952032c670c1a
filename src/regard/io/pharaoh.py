"""Word alignments in Pharaoh format: one line per sentence, links source-target, counted from 0, as in `0-0 1-2`.

People who align by hand mark links that are merely possible, `3?4` or `3p4`.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from regard.errors import DataError
from regard.io.lines import Say

Link = tuple[int, int]  # a source word and a target word
LINK = re.compile(r"([0-9]{1,9})([-?p])([0-9]{1,9})")  # no sentence has as many words
SLIPS = 50  # one line in so many may have links that lead nowhere, or cannot be read
SHOWN = 30  # characters of what is no link, in a message


def format_pharaoh(links: Iterable[Link]) -> str:
    """Links as a line."""
    return " ".join([f"{source}-{target}" for source, target in links])


def parse_pharaoh(text: str) -> list[Link]:
    """The links of a line, sure and possible ones, in the order they stand."""
    return [each.link for each in parse_marked_links(text)]


class MarkedLink(NamedTuple):
    """A link as a person wrote it."""

    link: Link
    sure: bool
    text: str


def parse_marked_links(text: str) -> list[MarkedLink]:
    """The links of a line as a person marked them: sure or merely possible, with their text."""
    links = []
    for piece in text.split():
        match = LINK.fullmatch(piece)
        if not match:
            excerpt = piece if len(piece) <= SHOWN else f"{piece[:SHOWN]}…"
            raise DataError(f"{excerpt!r} given, expected source-target, such as 3-4, or 3?4 for a possible link")
        links.append(MarkedLink((int(match[1]), int(match[3])), match[2] == "-", piece))
    return links


class Slips:
    """Lines with links that cannot be used: slips of a person's pen as long as there are few, which nobody can find.

    One is a slip, and one in SLIPS. More of them, or all, are of another text, of swapped sides, not counted as they
    should be, or no links at all.
    """

    def __init__(self, path: str | Path):
        self.path, self.lines, self.count, self.first = path, 0, 0, ""

    def add(self, number: int, problem: str | None) -> None:
        """One more line with links; `problem` is what is wrong with it, if anything."""
        self.lines += 1
        if problem is not None:
            self.count += 1
            self.first = self.first or f"{self.path}, line {number:,}: {problem}"

    def end(self, say: Say, what: str) -> None:
        """Report the slips once, with their number and `what` becomes of them; refuse a file with too many."""
        if self.count > max(1, self.lines / SLIPS) or (self.count and self.count == self.lines):
            raise DataError(self.first)
        if self.count:
            say(f"{self.first}; {what}{f' ({self.count:,} such lines)' * (self.count > 1)}")
