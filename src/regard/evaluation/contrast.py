"""Where two systems differ most, sentence by sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.evaluation.edits import distance
from regard.evaluation.metric import Reference, alternatives
from regard.evaluation.text import measure_chrf

__all__ = ["Contrast", "contrasts"]


@dataclass(frozen=True)
class Contrast:
    """One sentence by two systems, with the chrF of each; of several references the nearest to the better output."""

    number: int  # counted from 1
    source: str
    reference: str
    a: str
    b: str
    a_chrf: float
    b_chrf: float


def contrasts(
    sources: Sequence[str],
    references: Sequence[Reference],
    a: Sequence[str],
    b: Sequence[str],
    *,
    count: int = 5,
    lowercase: bool = False,
) -> tuple[list[Contrast], list[Contrast]]:
    """The sentences in which A is better by the most chrF, and those in which B is, at most `count` of each."""
    one, other = (measure_chrf(each, references, lowercase=lowercase) for each in (a, b))
    first, second = one.values(one.rows), other.values(other.rows)
    gain, given = second - first, alternatives(references)

    def contrast(i: int) -> Contrast:
        better = b[i] if gain[i] > 0 else a[i]
        nearest = min(given[i], key=lambda text: distance(better, text))
        return Contrast(i + 1, sources[i], nearest, a[i], b[i], float(first[i]), float(second[i]))

    order = np.argsort(gain, kind="stable").tolist()
    worse = [contrast(i) for i in order[:count] if gain[i] < 0]
    order = np.argsort(-gain, kind="stable").tolist()
    return worse, [contrast(i) for i in order[:count] if gain[i] > 0]
