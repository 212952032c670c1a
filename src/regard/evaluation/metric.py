"""Measurements: a row of counts per sentence and the function that scores their sum; and METRICS, the table of metrics.

BLEU's n-gram matches, an edit rate's edits and lengths, and exact match's hits all add up over sentences. So the rows
suffice to score the corpus, the sentences of one length, and a thousand resamples of the corpus.

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

Reference = str | Sequence[str]  # one text, or several, any of which is correct
Unit = Literal["points", "share", "tokens"]


@dataclass(frozen=True)
class Score:
    """A score with its signature; its unit is points (0 to 100), a share (0 to 1) or equally likely tokens."""

    name: str
    value: float
    signature: str
    unit: Unit = "points"

    def __str__(self) -> str:
        return f"{self.value:.2%}" if self.unit == "share" else f"{self.value:.2f}"


@dataclass(frozen=True, eq=False)
class Measurement:
    """The counts of one metric for a system's outputs, one row per sentence."""

    name: str
    rows: Float[np.ndarray, "n k"]
    of: Callable[[list[float]], float]  # computes the score from summed rows
    signature: str
    unit: Unit = "points"
    higher: bool = True  # whether higher is better

    def score(self) -> Score:
        """Return the score over all sentences."""
        return Score(self.name, self.of(self.rows.sum(0).tolist()), self.signature, self.unit)

    def values(self, sums: Float[np.ndarray, "r k"]) -> Float[np.ndarray, "r"]:
        """Return the score of each row of sums."""
        return np.array([self.of(row) for row in sums.tolist()], dtype=np.float64)


class Metric(NamedTuple):
    """A row of METRICS: a function that measures outputs against references, and the options that it accepts.

    The function is `(outputs, references, **options) -> Measurement`, or its dotted name, imported on demand.
    """

    function: Callable[..., Measurement] | str
    options: tuple[str, ...] = ("lowercase",)  # of `lowercase` and `tokenize`


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
    """Return all keys that `evaluate` accepts: those of METRICS, "perplexity" and "lengths"."""
    return (*METRICS, "perplexity", "lengths")


def choose_metrics(text: str, available: Sequence[str]) -> list[str]:
    """Split a comma-separated list into keys; an unknown key raises an ArgumentError with a suggestion."""
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
    """Measure outputs by the metric that `key` names in METRICS."""
    metric, options = METRICS[key], {"lowercase": lowercase, "tokenize": tokenize}
    function: Callable[..., Measurement] = plugins.resolve(metric.function)
    return function(outputs, references, **{name: options[name] for name in metric.options})


def alternatives(references: Sequence[Reference]) -> list[tuple[str, ...]]:
    """Return references as tuples of alternatives, one tuple per sentence."""
    return [(each,) if isinstance(each, str) else tuple(each) for each in references]


def signature_of(references: Sequence[Reference], **facts: str) -> str:
    """Return a signature in sacreBLEU's format for a score that Regard computes itself."""
    counts = {len(each) for each in alternatives(references)}
    whole = {"nrefs": str(counts.pop()) if len(counts) == 1 else "var", **facts, "regard": regard.__version__}
    return "|".join(f"{key}:{value}" for key, value in whole.items())


def finite(value: float) -> float | None:
    """Return a number, or None for infinity and NaN, which JSON cannot represent."""
    return value if math.isfinite(value) else None
