"""The parts of every score, a row of counts for each sentence and the value of their sum; and METRICS, their table.

BLEU's n-gram matches, an edit rate's edits and lengths, exact match's hits: all add up over sentences. With the rows at
hand a corpus, the sentences of one length, and a thousand resamples of the corpus are scored alike.

n sentences · k counts · r sums
"""

import math
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

import regard
from regard import plugins
from regard.config import suggestion
from regard.errors import ArgumentError

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
class Measurement:
    """The counts of one metric for a system's outputs, sentence by sentence."""

    name: str
    rows: Float[np.ndarray, "n k"]
    of: Callable[[list[float]], float]  # the value of summed rows
    signature: str
    unit: Unit = "points"
    higher: bool = True  # whether more is better

    def score(self) -> Score:
        """Return the score over all sentences."""
        return Score(self.name, self.of(self.rows.sum(0).tolist()), self.signature, self.unit)

    def values(self, sums: Float[np.ndarray, "r k"]) -> Float[np.ndarray, "r"]:
        """Return the value of each of several sums."""
        return np.array([self.of(row) for row in sums.tolist()], dtype=np.float64)


class Metric(NamedTuple):
    """A row of METRICS: what counts a score from outputs and references alone, and what can be said to it.

    The function is `(outputs, references, **options) -> Measurement`, or its dotted name, imported on demand.
    """

    function: Callable[..., Measurement] | str
    options: tuple[str, ...] = ("lowercase",)  # those of `lowercase` and `tokenize` that it takes


METRICS: MutableMapping[str, Metric] = plugins.table("metric")
for row_name, row in {
    "bleu": Metric("regard.evaluation.text.measure_bleu", ("lowercase", "tokenize")),
    "chrf": Metric("regard.evaluation.text.measure_chrf"),
    "ter": Metric("regard.evaluation.text.measure_ter", ()),
    "exact": Metric("regard.evaluation.text.measure_exact"),
    "character_errors": Metric("regard.evaluation.text.measure_character_errors"),
    "token_errors": Metric("regard.evaluation.text.measure_token_errors"),
}.items():
    plugins.register(row_name, metric=row)


def metric_names() -> tuple[str, ...]:
    """Return everything that can be asked for of translations: METRICS, perplexity, and BLEU by source length."""
    return (*METRICS, "perplexity", "lengths")


def choose_metrics(text: str, available: Sequence[str]) -> list[str]:
    """Split a list with commas into keys; a key that is not known is an ArgumentError with what was meant."""
    keys = [key.strip().lower().replace("-", "_") for key in text.split(",")]
    for key in keys:
        if key not in available:
            raise ArgumentError(f"metrics: {key!r} given, no such metric{suggestion(key, available)}")
    return list(dict.fromkeys(keys))


def measure(
    key: str,
    outputs: Sequence[str],
    references: Sequence[Reference],
    *,
    lowercase: bool = False,
    tokenize: str = "auto",
) -> Measurement:
    """Measure outputs by a row of METRICS."""
    metric, options = METRICS[key], {"lowercase": lowercase, "tokenize": tokenize}
    function: Callable[..., Measurement] = plugins.resolve(metric.function)
    return function(outputs, references, **{name: options[name] for name in metric.options})


def alternatives(references: Sequence[Reference]) -> list[tuple[str, ...]]:
    """Return references as tuples of alternatives, one tuple a sentence."""
    return [(each,) if isinstance(each, str) else tuple(each) for each in references]


def signature_of(references: Sequence[Reference], **facts: str) -> str:
    """Return a signature in the form of sacreBLEU's, for what Regard counts itself."""
    counts = {len(each) for each in alternatives(references)}
    whole = {"nrefs": str(counts.pop()) if len(counts) == 1 else "var", **facts, "regard": regard.__version__}
    return "|".join(f"{key}:{value}" for key, value in whole.items())


def finite(value: float) -> float | None:
    """Return a number as JSON can hold it: no infinity, no NaN."""
    return value if math.isfinite(value) else None
