"""A figure of several seeds: its mean, and how far they lie apart."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from regard.inspection.draw.table import show

__all__ = ["SeedStatistics", "over_seeds"]

T = TypeVar("T")


@dataclass(frozen=True)
class SeedStatistics:
    """One figure, a value a seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the seeds."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation between seeds; of one seed none is known, and 0 is said."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def as_text(self, style: str = ".1f") -> str:
        """As a table or a sentence has it: 37.2 ± 0.3, and 37.2 of one seed."""
        mean = show(self.mean, style)
        return f"{mean} ± {show(self.deviation, style)}" if len(self.values) > 1 else mean


def over_seeds(seeds: Iterable[T], figure: Callable[[T], float]) -> SeedStatistics:
    """A figure of each of some systems, or of what was measured of them, which differ in their seed."""
    return SeedStatistics(tuple(figure(each) for each in seeds))
