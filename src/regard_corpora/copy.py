"""Copy: a sequence of symbols, as it is. The plainest test of a memory.

Options: see `sequences`. Symbols are letters: a to z, then aa, ab and so on.
"""

from collections.abc import Callable, Iterator, Sequence

from regard.data import Example, builtin
from regard_corpora import sequences
from regard_corpora.sequences import Options

__all__ = ["Options", "draw", "every"]


def solve(sequence: Sequence[int]) -> list[int]:
    """Return where each symbol of the target stands in the source."""
    return list(range(len(sequence)))


def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Draw sequences without end; None for one that `accept` refuses."""
    return sequences.draw(random, accept, options, sequences.letters(options.symbols), solve)


def every(accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Yield every sequence once."""
    return sequences.every(accept, options, sequences.letters(options.symbols), solve)
