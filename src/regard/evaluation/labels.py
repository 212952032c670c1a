"""Predicted labels against true ones: accuracy, precision, recall, F1 and the confusion matrix.

Of a label, precision is the share of what was called so that is so, recall the share of what is so that was called so,
and F1 the harmonic mean of the two; macro-F1 is the plain mean of F1 over the labels that there are or that were said,
so that a rare label counts as much as a frequent one. What has nothing to be a share of is 0.

k labels
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from regard.errors import ArgumentError


class Labelling:
    """A confusion matrix, how often each label was predicted where each is right, and its scores."""

    def __init__(self, labels: tuple[str, ...], confusion: Int64[np.ndarray, "k k"]):
        """`confusion` has a row for what is right, a column for what was said."""
        self.labels, self.confusion = labels, confusion
        right, said, there = np.diagonal(confusion), confusion.sum(0), confusion.sum(1)
        self.accuracy = float(shares(right.sum(), confusion.sum()))
        self.precision: Float[np.ndarray, " k"] = shares(right, said)
        self.recall: Float[np.ndarray, " k"] = shares(right, there)
        self.f1: Float[np.ndarray, " k"] = shares(2 * right, said + there)
        known = said + there > 0
        self.macro_f1 = float(self.f1[known].mean()) if known.any() else 0.0

    def table(self) -> dict[str, Any]:
        """Return everything, as JSON has it."""
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
    """Compare the labels of a system with the right ones; without `labels`, those that come are sorted."""
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
    """Divide part by whole; 0 where there is nothing."""
    return np.asarray(np.divide(part, whole, out=np.zeros(np.shape(whole)), where=np.asarray(whole) > 0))
