"""Measurements of translations by the length of their source: the share that is exact, and BLEU."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from regard.evaluation import text_scores
from regard_studies.corpora.pairs import Pairs
from regard_studies.systems import TrainedSystem

__all__ = ["Figures", "Lengths", "bins", "counts", "mean", "share", "translate_tests", "within"]

Figures = Mapping[str, list[float]]  # exact and bleu: one a bin, then all; seconds: one


class Lengths(NamedTuple):
    """Groups of sentences by their number of words; the first `trained` groups have lengths seen in training."""

    limits: Sequence[tuple[int, int]]
    trained: int


def within(sources: Sequence[str], low: int, high: int) -> list[int]:
    """Return the indices of the sentences of a length."""
    return [i for i, source in enumerate(sources) if low <= len(source.split()) <= high]


def counts(pairs: Pairs, lengths: Lengths) -> list[int]:
    """Count the sentences of each group."""
    return [len(within(pairs.sources, *limits)) for limits in lengths.limits]


def bins(pairs: Pairs, outputs: Sequence[str], lengths: Lengths) -> dict[str, list[float]]:
    """Compute the share that is exact, and BLEU, for each length and for all."""
    groups = [within(pairs.sources, *limits) for limits in lengths.limits] + [list(range(len(outputs)))]
    right = [output == reference for output, reference in zip(outputs, pairs.references, strict=True)]
    return {
        "exact": [100 * share([right[i] for i in each]) for each in groups],
        "bleu": [
            text_scores.bleu([outputs[i] for i in each], [pairs.references[i] for i in each]) if each else 0.0
            for each in groups
        ],
    }


def translate_tests(system: TrainedSystem, pairs: Pairs, lengths: Lengths) -> Figures:
    """Translate the test set greedily and measure the outputs, and how long the training took."""
    outputs = system.run.translate(pairs.sources, beam=1)
    return {**bins(pairs, outputs, lengths), "seconds": [system.seconds]}


def share(right: Sequence[bool]) -> float:
    return sum(right) / len(right) if right else 0.0


def mean(figures: Sequence[Figures], key: str) -> list[float]:
    """Average over seeds."""
    return [statistics.fmean(values) for values in zip(*(each[key] for each in figures), strict=True)]
