"""Sort: a sequence of numbers, in ascending order. Equal numbers keep their order, so that each link is known.

Options: see `sequences`. Symbols are numbers, 0 to symbols - 1, and are sorted as such: 9 before 10.
"""

from collections.abc import Callable, Iterator, Sequence

from regard.data import Example, builtin
from regard_corpora import sequences
from regard_corpora.sequences import Options

__all__ = ["Options", "draw", "every"]


def solve(sequence: Sequence[int]) -> list[int]:
    """Return where each symbol of the target stands in the source."""
    return sorted(range(len(sequence)), key=sequence.__getitem__)


def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Draw sequences without end; None for one that `accept` refuses."""
    return sequences.draw(random, accept, options, [str(n) for n in range(options.symbols)], solve)


def every(accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Yield every sequence once."""
    return sequences.every(accept, options, [str(n) for n in range(options.symbols)], solve)
