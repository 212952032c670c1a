"""What every score is made of: a row of counts for each sentence, and the value of their sum.

BLEU's n-gram matches, an edit rate's edits and lengths, exact match's hits: all add up over sentences. With the rows at
hand a corpus, the sentences of one length, and a thousand resamples of the corpus are scored alike.

n sentences · k counts · r sums
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

import regard

__all__ = ["Measured", "Reference", "Score", "alternatives", "finite", "signature_of"]

Reference = str | Sequence[str]  # one, or several of which any is right
Unit = Literal["points", "share", "tokens"]


@dataclass(frozen=True)
class Score:
    """A number, and how it was reached: points from 0 to 100, a share from 0 to 1, or equally likely tokens."""

    name: str
    value: float
    signature: str
    unit: Unit = "points"

    def __str__(self) -> str:
        return f"{self.value:.2%}" if self.unit == "share" else f"{self.value:.2f}"


@dataclass(frozen=True, eq=False)
class Measured:
    """What a system's outputs count for, sentence by sentence."""

    name: str
    rows: Float[np.ndarray, "n k"]
    of: Callable[[list[float]], float]  # the value of summed rows
    signature: str
    unit: Unit = "points"
    higher: bool = True  # whether more is better

    def score(self) -> Score:
        """Over all sentences."""
        return Score(self.name, self.of(self.rows.sum(0).tolist()), self.signature, self.unit)

    def over(self, chosen: Int[np.ndarray, "m"]) -> float:
        """The value over some of the sentences."""
        return self.of(self.rows[chosen].sum(0).tolist())

    def values(self, sums: Float[np.ndarray, "r k"]) -> Float[np.ndarray, "r"]:
        """The value of each of several sums."""
        return np.array([self.of(row) for row in sums.tolist()], dtype=np.float64)


def alternatives(references: Sequence[Reference]) -> list[tuple[str, ...]]:
    """References as tuples of alternatives, one tuple a sentence."""
    return [(each,) if isinstance(each, str) else tuple(each) for each in references]


def signature_of(references: Sequence[Reference], **facts: str) -> str:
    """A signature in the form of sacreBLEU's, for what Regard counts itself."""
    counts = {len(each) for each in alternatives(references)}
    whole = {"nrefs": str(counts.pop()) if len(counts) == 1 else "var", **facts, "regard": regard.__version__}
    return "|".join(f"{key}:{value}" for key, value in whole.items())


def finite(value: float) -> float | None:
    """A number as JSON can hold it: no infinity, no NaN."""
    return value if math.isfinite(value) else None
