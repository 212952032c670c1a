"""Sequences of symbols: copied, reversed or sorted; where each symbol of the target comes from is known exactly.

Symbols of `copy` and `reverse` are letters: a to z, then aa, ab and so on; those of `sort` are numbers, sorted as such,
9 before 10, and equal ones keep their order. Copying is the plainest test of a memory.

Options: `shortest` and `longest` in symbols, every length equally likely; `symbols`, how many different ones there are.
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

Solve = Callable[[Sequence[int]], list[int]]  # where each symbol of the target stands in the source
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
    """Return names of symbols: a, b, … z, aa, ab, …"""
    names: Iterator[str] = (
        "".join(name) for size in itertools.count(1) for name in itertools.product(string.ascii_lowercase, repeat=size)
    )
    return tuple(itertools.islice(names, count))


def corpus(solve: Solve, name_symbols: Callable[[int], Sequence[str]] = letters) -> Any:
    """Make a corpus from its solution and the names of so many symbols."""

    def make(sequence: Sequence[int], accept: builtin.SourceFilter, names: Sequence[str]) -> Example | None:
        source = [names[symbol] for symbol in sequence]
        text = " ".join(source)
        if not accept(text):
            return None
        order = solve(sequence)
        links = sorted((place, index) for index, place in enumerate(order))
        return Example(text, " ".join([source[place] for place in order]), tuple(links))

    def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
        """Draw sequences without end; None for one that `accept` refuses."""
        lengths, symbols, names = options.longest - options.shortest + 1, options.symbols, name_symbols(options.symbols)
        while True:
            length = options.shortest + int(random() * lengths)
            yield make([int(random() * symbols) for _ in range(length)], accept, names)

    def every(accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
        """Yield every sequence once, short ones first."""
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
