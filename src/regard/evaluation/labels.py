"""Scores of predicted labels: accuracy, precision, recall, F1 and the confusion matrix.

Precision is the share of a label's predictions that are correct, recall the share of its true items that were
predicted, and F1 their harmonic mean. Macro-F1 is the plain mean of F1 over all labels that occur in the references or
the predictions, so that rare labels count as much as frequent ones. A share of nothing is 0.

k labels
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from regard.errors import ArgumentError


class Labelling:
    """A confusion matrix of true and predicted labels, and its scores."""

    def __init__(self, labels: tuple[str, ...], confusion: Int64[np.ndarray, "k k"]):
        """Compute all scores; `confusion` has a row per true label and a column per predicted label."""
        self.labels, self.confusion = labels, confusion
        right, said, there = np.diagonal(confusion), confusion.sum(0), confusion.sum(1)
        self.accuracy = float(shares(right.sum(), confusion.sum()))
        self.precision: Float[np.ndarray, " k"] = shares(right, said)
        self.recall: Float[np.ndarray, " k"] = shares(right, there)
        self.f1: Float[np.ndarray, " k"] = shares(2 * right, said + there)
        known = said + there > 0
        self.macro_f1 = float(self.f1[known].mean()) if known.any() else 0.0

    def table(self) -> dict[str, Any]:
        """Return all scores and the matrix as a dictionary for JSON."""
        columns = zip(self.confusion.sum(1), self.precision, self.recall, self.f1, strict=True)
        return {
            "accuracy": self.accuracy,
            "f1": self.macro_f1,
            "labels": {
                label: {"count": int(count), "precision": float(p), "recall": float(r), "f1": float(f)}
                for label, (count, p, r, f) in zip(self.labels, columns, strict=True)
            },
            "confusion": self.confusion.tolist(),
        }


def measure_labels(outputs: Sequence[str], references: Sequence[str], labels: Sequence[str] | None = None) -> Labelling:
    """Compare a system's labels with the true ones; without `labels`, the labels that occur, sorted, are used."""
    if len(outputs) != len(references):
        raise ArgumentError(f"references: {len(references)} given for {len(outputs)} outputs, expected as many")
    names = tuple(sorted({*outputs, *references})) if labels is None else tuple(labels)
    number = {label: i for i, label in enumerate(names)}
    confusion = np.zeros((len(names), len(names)), np.int64)
    for name, texts in (("outputs", outputs), ("references", references)):
        for label in texts:
            if label not in number:
                raise ArgumentError(f"{name}: {label!r} given, expected one of {', '.join(names)}")
    np.add.at(confusion, ([number[label] for label in references], [number[label] for label in outputs]), 1)
    return Labelling(names, confusion)


def shares(part: Any, whole: Any) -> np.ndarray:
    """Divide part by whole; 0 where whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.zeros(np.shape(whole)), where=np.asarray(whole) > 0))
