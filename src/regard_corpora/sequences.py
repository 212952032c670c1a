"""Sequences of symbols, copied, reversed or sorted, with exact alignments.

Symbols of `copy` and `reverse` are letters: a to z, then aa, ab and so on. Those of `sort` are numbers, sorted by value
(9 before 10) and stably. Copying is the simplest test of a memory.

Options: `shortest` and `longest` in symbols, every length equally likely; `symbols`, the number of different symbols.
"""

import dataclasses
import functools
import itertools
import string
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from regard.data import Example, builtin

__all__ = ["COPY", "REVERSE", "SORT", "Options", "letters"]

Solve = Callable[[Sequence[int]], list[int]]  # returns the source index of each target symbol
SYMBOLS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Options:
    longest: int = 12
    shortest: int = 3
    symbols: int = 26

    def __post_init__(self) -> None:
        builtin.check_whole("shortest", self.shortest, 1, builtin.MAX_WORDS)
        builtin.check_whole("longest", self.longest, self.shortest, builtin.MAX_WORDS)
        builtin.check_whole("symbols", self.symbols, 1, SYMBOLS)


@functools.cache
def letters(count: int) -> tuple[str, ...]:
    """Return the names of symbols: a, b, … z, aa, ab, …"""
    names: Iterator[str] = (
        "".join(name) for size in itertools.count(1) for name in itertools.product(string.ascii_lowercase, repeat=size)
    )
    return tuple(itertools.islice(names, count))


def corpus(solve: Solve, name_symbols: Callable[[int], Sequence[str]] = letters) -> Any:
    """Make a corpus from a function that solves its task, and one that names a number of symbols."""

    def make(sequence: Sequence[int], accept: builtin.SourceFilter, names: Sequence[str]) -> Example | None:
        source = [names[symbol] for symbol in sequence]
        text = " ".join(source)
        if not accept(text):
            return None
        order = solve(sequence)
        links = sorted((place, index) for index, place in enumerate(order))
        return Example(text, " ".join([source[place] for place in order]), tuple(links))

    def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
        """Draw sequences endlessly; yield None for one that `accept` refuses."""
        lengths, symbols, names = options.longest - options.shortest + 1, options.symbols, name_symbols(options.symbols)
        while True:
            length = options.shortest + int(random() * lengths)
            yield make([int(random() * symbols) for _ in range(length)], accept, names)

    def every(accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
        """Yield every sequence once, shorter ones first."""
        names = name_symbols(options.symbols)
        for length in range(options.shortest, options.longest + 1):
            for sequence in itertools.product(range(options.symbols), repeat=length):
                yield make(sequence, accept, names)

    return SimpleNamespace(__name__=__name__, Options=Options, draw=draw, every=every)


COPY = corpus(lambda sequence: list(range(len(sequence))))
REVERSE = corpus(lambda sequence: list(range(len(sequence) - 1, -1, -1)))
SORT = corpus(
    lambda sequence: sorted(range(len(sequence)), key=sequence.__getitem__), lambda count: list(map(str, range(count)))
)
