"""Figures of several seeds: their mean and deviation, and whether two systems differ by more than chance.

Chance is that of the seeds, and where every item of a test has a figure, that of the items, too.

s seeds · n items of a test
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from regard.inspection import Cell, show

FLOOR = 0.5  # BLEU: what one seed alone cannot tell from chance

T = TypeVar("T")


@dataclass(frozen=True)
class SeedStatistics:
    """One figure, a value per seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the seeds."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """Return the standard deviation between seeds; 0 for one seed, where it is unknown."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def as_text(self, style: str = ".1f") -> str:
        """Format mean and deviation for a table or a sentence: 37.2 ± 0.3, or 37.2 for one seed."""
        mean = show(self.mean, style)
        return f"{mean} ± {show(self.deviation, style)}" if len(self.values) > 1 else mean

    def as_cell(self, style: str = ".1f") -> Cell:
        """Return the text of several seeds, or the number of one, for a column of that format."""
        return self.as_text(style) if len(self.values) > 1 else self.mean


def over_seeds(seeds: Iterable[T], figure: Callable[[T], float]) -> SeedStatistics:
    """Collect one figure of systems, or of their measurements, that differ in their seed."""
    return SeedStatistics(tuple(figure(each) for each in seeds))


def over_figures(seeds: Sequence[Mapping[str, float]]) -> dict[str, SeedStatistics]:
    """Collect the figures of a system by name, each over its seeds."""
    return {name: SeedStatistics(tuple(each[name] for each in seeds)) for name in seeds[0]}


class MeanDifference(NamedTuple):
    """A difference and its standard error."""

    mean: float
    error: float

    @property
    def more(self) -> bool:
        """Return whether the difference is above zero by more than two standard errors."""
        return self.mean > 2 * self.error

    def as_text(self, style: str = ".1f") -> str:
        """Format the difference with two standard errors, as in +1.3 ± 0.4."""
        return f"{'+' * (self.mean > 0)}{show(self.mean, style)} ± {show(2 * self.error, style)}"


def mean_difference(
    one: Float[np.ndarray, "s n"], other: Float[np.ndarray, "s n"], sizes: Float[np.ndarray, " n"] | None = None
) -> MeanDifference:
    """Compute the mean difference of `one` and `other` per unit of `size`; both have a figure a seed and test item.

    Both saw the same items, so that it is their differences that scatter; what an item's size does not explain counts.
    Seeds add what they do to a system as a whole. Of one seed nothing is known of that, and only the items count.
    """
    sizes = np.ones(one.shape[1]) if sizes is None else sizes
    whole, count = sizes.sum(), len(sizes)
    each = one.mean(0) - other.mean(0)
    mean = each.sum() / whole
    variance = ((each - mean * sizes) ** 2).sum() * count / max(count - 1, 1) / whole**2
    for system in (one, other):
        if len(system) > 1:
            sums = system.sum(1, keepdims=True) / whole
            # What a seed does to single items scatters with the items, and is counted there.
            single = system - sums * sizes
            variance += max(0.0, sums.var(ddof=1) - single.var(0, ddof=1).sum() / whole**2) / len(system)
    return MeanDifference(float(mean), math.sqrt(variance))


def margin(figures: Iterable[SeedStatistics], floor: float = FLOOR) -> float:
    """Return how much two means of equally many seeds must differ: two standard errors of their difference.

    The deviation between seeds is taken to be the same for all systems, and is pooled over them. Where there is one
    seed it is not known, and the floor is returned.
    """
    several = [each for each in figures if len(each.values) > 1]
    if not several:
        return floor
    freedom = sum(len(each.values) - 1 for each in several)
    pooled = math.sqrt(sum((len(each.values) - 1) * each.deviation**2 for each in several) / freedom)
    return 2 * pooled * math.sqrt(2 / statistics.fmean(len(each.values) for each in several))


def is_lower(one: SeedStatistics, other: SeedStatistics, floor: float) -> bool:
    """Return whether one mean is lower by more than the floor, and than their deviations together."""
    return other.mean - one.mean > max(floor, one.deviation + other.deviation)


def are_alike(one: SeedStatistics, other: SeedStatistics, floor: float = FLOOR) -> bool:
    """Return whether two means are no further apart than their deviations together or, for one seed, than the floor.

    `margin` would call the more alike the more any other system varies.
    """
    return abs(one.mean - other.mean) <= max(floor, one.deviation + other.deviation)
