"""Scores by the length of the source: where a model without attention falls off, and others need not.

After figure 2 of Bahdanau et al. 2015 (arXiv:1409.0473).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.evaluation.metric import Measured
from regard.evaluation.significance import SEED, interval, resampled

__all__ = ["FEW", "Bucket", "Lengths", "by_length", "lengths_of"]

ROWS = 8  # as many buckets as a reader takes in
FEW = 10  # sentences, below which resampling says nothing


@dataclass(frozen=True)
class Bucket:
    """The sentences whose source is from `first` to `last` long (None: and longer), and their score."""

    first: int
    last: int | None
    sentences: int
    value: float
    interval: tuple[float, float] | None  # 95 %, by bootstrap; None where there are too few sentences to draw from

    @property
    def name(self) -> str:
        """Its lengths, as in 10–19."""
        if self.last is None:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True)
class Lengths:
    """A score by length; `unit` says what lengths are counted in."""

    metric: str
    unit: str
    buckets: list[Bucket]
    value: float  # over all


def lengths_of(sources: Sequence[str]) -> tuple[list[int], str]:
    """How long each source is, in words; in characters where no source has a space, as in Chinese."""
    words = [len(text.split()) for text in sources]
    if max(words, default=0) > 1:
        return words, "words"
    return [len(text.strip()) for text in sources], "characters"


def by_length(
    measured: Measured, sources: Sequence[str], *, width: int | None = None, resamples: int = 1000, seed: int = SEED
) -> Lengths:
    """A score for each range of source lengths that has sentences; `width` is chosen by the lengths if not given.

    Ranges begin at multiples of the width, the last one is open, and empty sources stand alone.
    """
    lengths, unit = lengths_of(sources)
    found = np.array(lengths, dtype=np.int64)
    usual = (
        float(np.quantile(found, 0.98, method="higher")) if len(found) else 0.0
    )  # a few very long ones do not stretch the rest
    if width is None:
        width = next((step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if usual < step * ROWS), 1000)
    top = int(usual) // width  # the open range
    which = np.where(found == 0, -1, np.minimum(found // width, top))
    longer = len(found) > 0 and int(found.max()) >= (top + 1) * width
    buckets = []
    for number in np.unique(which).tolist():
        chosen = np.flatnonzero(which == number)
        spread = interval(resampled([measured], resamples, seed, chosen)[0]) if len(chosen) >= FEW else None
        first = 0 if number < 0 else max(1, number * width)
        last = 0 if number < 0 else None if number == top and longer else (number + 1) * width - 1
        buckets.append(Bucket(first, last, len(chosen), measured.over(chosen), spread))
    return Lengths(measured.name, unit, buckets, measured.score().value)
