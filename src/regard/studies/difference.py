"""Whether two systems are apart by more than chance: that of the test's items, and that of the seeds."""

# s seeds · n items of a test
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from regard.inspection.draw.table import show

__all__ = ["MeanDifference", "mean_difference"]


class MeanDifference(NamedTuple):
    """A difference and its standard error."""

    mean: float
    error: float

    @property
    def more(self) -> bool:
        """Whether it is above nothing by more than two standard errors."""
        return self.mean > 2 * self.error

    def as_text(self, style: str = ".1f") -> str:
        """With two standard errors, as in +1.3 ± 0.4."""
        return f"{'+' * (self.mean > 0)}{show(self.mean, style)} ± {show(2 * self.error, style)}"


def mean_difference(
    one: Float[np.ndarray, "s n"], other: Float[np.ndarray, "s n"], sizes: Float[np.ndarray, " n"] | None = None
) -> MeanDifference:
    """How much more `one` has than `other`, a unit of size: each has a figure for every seed and every item of a test.

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
