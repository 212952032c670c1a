"""Figures over several seeds: mean, deviation, and whether two systems differ by more than chance.

Chance comes from the seeds and, if every test item has a figure, also from the items.

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

FLOOR = 0.5  # BLEU; with one seed, smaller differences may be chance

T = TypeVar("T")


@dataclass(frozen=True)
class SeedStatistics:
    """One figure with a value per seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean over seeds."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """Return the standard deviation between seeds; 0 for one seed, for which it is unknown."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def as_text(self, style: str = ".1f") -> str:
        """Format mean and deviation for a table or a sentence: 37.2 ± 0.3, or 37.2 for one seed."""
        mean = show(self.mean, style)
        return f"{mean} ± {show(self.deviation, style)}" if len(self.values) > 1 else mean

    def as_cell(self, style: str = ".1f") -> Cell:
        """Return a table cell: text for several seeds, the plain number for one."""
        return self.as_text(style) if len(self.values) > 1 else self.mean


def over_seeds(seeds: Iterable[T], figure: Callable[[T], float]) -> SeedStatistics:
    """Collect one figure of systems, or of their measurements, over seeds."""
    return SeedStatistics(tuple(figure(each) for each in seeds))


def over_figures(seeds: Sequence[Mapping[str, float]]) -> dict[str, SeedStatistics]:
    """Collect the named figures of a system over its seeds."""
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
    """Compute the mean difference of `one` and `other` per unit of `sizes`; both have a figure per seed and test item.

    The items are paired, so that the variance is that of the differences which an item's size does not explain. The
    variance of the systems' totals between seeds is added; it is unknown for one seed, and then only items count.
    """
    sizes = np.ones(one.shape[1]) if sizes is None else sizes
    whole, count = sizes.sum(), len(sizes)
    each = one.mean(0) - other.mean(0)
    mean = each.sum() / whole
    variance = ((each - mean * sizes) ** 2).sum() * count / max(count - 1, 1) / whole**2
    for system in (one, other):
        if len(system) > 1:
            sums = system.sum(1, keepdims=True) / whole
            # A seed's effect on single items is part of the variance over items; do not count it twice.
            single = system - sums * sizes
            variance += max(0.0, sums.var(ddof=1) - single.var(0, ddof=1).sum() / whole**2) / len(system)
    return MeanDifference(float(mean), math.sqrt(variance))


def margin(figures: Iterable[SeedStatistics], floor: float = FLOOR) -> float:
    """Return how much two means over seeds must differ: two standard errors of their difference.

    The deviation between seeds is assumed to be the same for all systems and pooled over them. With one seed it is
    unknown, and the floor is returned.
    """
    several = [each for each in figures if len(each.values) > 1]
    if not several:
        return floor
    freedom = sum(len(each.values) - 1 for each in several)
    pooled = math.sqrt(sum((len(each.values) - 1) * each.deviation**2 for each in several) / freedom)
    return 2 * pooled * math.sqrt(2 / statistics.fmean(len(each.values) for each in several))


def is_lower(one: SeedStatistics, other: SeedStatistics, floor: float) -> bool:
    """Return whether one mean is lower by more than the floor and by more than the sum of both deviations."""
    return other.mean - one.mean > max(floor, one.deviation + other.deviation)


def are_alike(one: SeedStatistics, other: SeedStatistics, floor: float = FLOOR) -> bool:
    """Return whether two means differ by at most the floor or the sum of their deviations, whichever is larger.

    With `margin`, two systems would seem more alike the more other systems vary.
    """
    return abs(one.mean - other.mean) <= max(floor, one.deviation + other.deviation)
