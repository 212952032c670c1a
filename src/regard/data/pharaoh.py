"""Word alignments in Pharaoh's format: a line a sentence, links source-target, counted from 0, as in `0-0 1-2`."""

import re
from collections.abc import Iterable

from regard.errors import DataError

__all__ = ["parse_pharaoh", "pharaoh"]


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links (source, target) as a line."""
    return " ".join([f"{source}-{target}" for source, target in links])


def parse_pharaoh(text: str) -> list[tuple[int, int]]:
    """The links of a line, in the order they stand."""
    links = []
    for piece in text.split():
        found = re.fullmatch(r"([0-9]+)-([0-9]+)", piece)
        if not found:
            raise DataError(f"alignment: {piece!r} given, expected source-target, such as 3-4")
        links.append((int(found[1]), int(found[2])))
    return links
