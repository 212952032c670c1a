"""Measurements of document classifiers: their accuracy, also by length, and what they look at."""

# s seeds · n documents of the test
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from regard.data import document_texts
from regard.decoding import batches
from regard.evaluation import measure_labels
from regard.inspection import WeighedSentence, weigh
from regard.models import KINDS
from regard_studies.corpora.reviews import Reviews
from regard_studies.seed_statistics import SeedStatistics, over_seeds
from regard_studies.systems import TrainedSystem

__all__ = [
    "ClassifierFigures",
    "PointingRates",
    "chance_rates",
    "length_quarters",
    "measure_classifiers",
    "measure_pointing",
]

Encode = Callable[[TrainedSystem], Sequence[Sequence[int]]]


class PointingRates(NamedTuple):
    """The rate, in percent, at which the sentence and the word with the largest weight are deciding ones."""

    sentence: SeedStatistics
    word: SeedStatistics


@dataclass(frozen=True, eq=False)
class ClassifierFigures:
    """The figures of a system, over all its seeds."""

    right: Bool[np.ndarray, "s n"]
    f1: SeedStatistics  # macro, in percent
    seconds: SeedStatistics
    parameters: int
    pointing: PointingRates | None = None
    accuracy: SeedStatistics = field(init=False)  # in percent

    def __post_init__(self) -> None:
        object.__setattr__(self, "accuracy", self.within(np.ones(self.right.shape[1], bool)))

    def within(self, members: Bool[np.ndarray, " n"]) -> SeedStatistics:
        """Compute the accuracy on some of the documents, in percent."""
        return SeedStatistics(tuple(100 * self.right[:, members].mean(1)))


def encode_once(reviews: Reviews) -> Encode:
    """Encode the test set once: systems of one corpus share a tokenizer, and there are thousands of reviews."""
    encoded: dict[str, Sequence[Sequence[int]]] = {}

    def encode(system: TrainedSystem) -> Sequence[Sequence[int]]:
        tokenizers = system.run.tokenizers
        if tokenizers.hash not in encoded:
            encoded[tokenizers.hash] = document_texts.encode_documents(
                reviews.texts, tokenizers.source, system.run.settings.data
            )[0]
        return encoded[tokenizers.hash]

    return encode


def measure_classifiers(systems: Sequence[TrainedSystem], reviews: Reviews, encode: Encode) -> ClassifierFigures:
    """Measure all seeds of a system on the test set."""
    right, f1, rates = [], [], []
    for each in systems:
        reads = KINDS[each.run.settings.kind].reads
        # On a GPU a batch takes about as long as its longest document, however many stand beside it.
        budget = 8 * batches.LABEL_BUDGET if each.run.device.type == "cuda" else batches.LABEL_BUDGET
        scores = batches.label_in_batches(each.run.model, encode(each), reads, each.run.device, budget)
        predictions = [each.run.labels[i] for i in scores.argmax(1).tolist()]
        right.append([one == other for one, other in zip(predictions, reviews.labels, strict=True)])
        f1.append(100 * measure_labels(predictions, reviews.labels).macro_f1)
        if reviews.deciding is not None and getattr(each.run.model.config, "attention", False):
            run = each.run
            weights = weigh(run.model, run.tokenizers.source, run.settings.data, reviews.texts)
            rates.append(measure_pointing(weights, reviews.deciding))
    return ClassifierFigures(
        np.array(right),
        SeedStatistics(tuple(f1)),
        over_seeds(systems, lambda each: each.seconds),
        systems[0].parameters,
        PointingRates(*(SeedStatistics(values) for values in zip(*rates, strict=True))) if rates else None,
    )


def measure_pointing(
    documents: Sequence[Sequence[WeighedSentence]], deciding: Sequence[frozenset[int]]
) -> tuple[float, float]:
    """Compute in how many documents, in percent, the sentence and the word with the largest weight decide."""
    sentences = words = 0
    for document, own in zip(documents, deciding, strict=True):
        counts = [count for sentence in document for count in sentence.counts]
        words += int(np.argmax(counts)) in own
        first = int(np.argmax([sentence.weight for sentence in document]))
        start = sum(len(sentence.words) for sentence in document[:first])
        sentences += any(start <= word < start + len(document[first].words) for word in own)
    return 100 * sentences / len(documents), 100 * words / len(documents)


def chance_rates(reviews: Reviews) -> tuple[float, float]:
    """Compute the rates of pointing at random; sentences of built-in reviews end with a full stop."""
    assert reviews.deciding is not None
    sentences, words = [], []
    for text, own in zip(reviews.texts, reviews.deciding, strict=True):
        tokens = text.split()
        of = np.cumsum([0, *(word == "." for word in tokens[:-1])])  # the sentence of each word
        sentences.append(len({int(of[word]) for word in own}) / (of[-1] + 1))
        words.append(len(own) / len(tokens))
    return 100 * float(np.mean(sentences)), 100 * float(np.mean(words))


def length_quarters(words: Sequence[int]) -> list[tuple[str, Bool[np.ndarray, " n"]]]:
    """Divide the documents by length into four groups of about equal size: their range of words, and their indices."""
    counts = np.array(words)
    edges = [int(edge) for edge in np.quantile(counts, [0.25, 0.5, 0.75], method="lower")]
    lows, highs = [int(counts.min()), *(edge + 1 for edge in edges)], [*edges, int(counts.max())]
    groups = [(f"{low}–{high}", (low <= counts) & (counts <= high)) for low, high in zip(lows, highs, strict=True)]
    return [(name, members) for name, members in groups if members.any()]
