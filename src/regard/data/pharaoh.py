"""Word alignments in Pharaoh's format: a line a sentence, links source-target, counted from 0, as in `0-0 1-2`.

People who align by hand mark links that are merely possible, `3?4` or `3p4`.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from regard.errors import DataError

__all__ = ["Link", "marked_links", "parse_pharaoh", "pharaoh"]

Link = tuple[int, int]  # a source word and a target word
LINK = re.compile(r"([0-9]+)([-?p])([0-9]+)")


def pharaoh(links: Iterable[Link]) -> str:
    """Links as a line."""
    return " ".join([f"{source}-{target}" for source, target in links])


def parse_pharaoh(text: str) -> list[Link]:
    """The links of a line, sure and possible ones, in the order they stand."""
    return [each.link for each in marked_links(text)]


class Marked(NamedTuple):
    """A link as a person wrote it."""

    link: Link
    sure: bool
    text: str


def marked_links(text: str) -> list[Marked]:
    """The same, with all that a person said of them."""
    links = []
    for piece in text.split():
        found = LINK.fullmatch(piece)
        if not found:
            raise DataError(f"{piece!r} given, expected source-target, such as 3-4, or 3?4 for a possible link")
        links.append(Marked((int(found[1]), int(found[3])), found[2] == "-", piece))
    return links
