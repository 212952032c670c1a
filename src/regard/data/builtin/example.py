"""An example of a built-in corpus, and what a corpus must offer."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from regard.config import show_value
from regard.errors import ArgumentError

__all__ = ["LONGEST", "Corpus", "Example", "SourceFilter", "check_name", "check_whole"]

LONGEST = 10_000  # words, or sentences, that an option may ask for
SourceFilter = Callable[[str], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A source, its target, and how their words belong together. Words stand apart by single spaces."""

    source: str
    target: str
    alignment: tuple[
        tuple[int, int], ...
    ] = ()  # gold links (source word, target word), sorted; () where there are none
    source_heads: tuple[int, ...] = ()  # phrasebook: the index of each word's head, -1 for the root
    target_heads: tuple[int, ...] = ()
    source_relations: tuple[
        str, ...
    ] = ()  # phrasebook: what each word is to its head, as Universal Dependencies name it
    target_relations: tuple[str, ...] = ()


@runtime_checkable
class Corpus(Protocol):
    """A module of a corpus: its options, and examples drawn with numbers from [0, 1).

    `accept` says of a source whether it is of the split and new; where it is not, None comes in its place, so that the
    target need not be made. `every` gives all there are once, or None where they cannot be listed.
    """

    Options: type[Any]

    def draw(self, random: Callable[[], float], accept: SourceFilter, options: Any) -> Iterator[Example | None]: ...

    def every(self, accept: SourceFilter, options: Any) -> Iterator[Example | None] | None: ...


def check_whole(name: str, value: object, lowest: int, highest: int) -> None:
    """Refuse an option that is not a whole number from `lowest` to `highest`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ArgumentError(f"{name}: {show_value(value)} given, expected a whole number of at least {lowest}")
    if value > highest:
        raise ArgumentError(f"{name}: {show_value(value)} given, expected at most {highest}")


def check_name(name: str, value: object, names: Iterable[str]) -> None:
    """Refuse an option that is none of these names."""
    if not isinstance(value, str) or value not in (names := tuple(names)):
        raise ArgumentError(f"{name}: {show_value(value)} given, expected one of {', '.join(names)}")
