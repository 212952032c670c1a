"""What is chosen where a configuration leaves it open: from the size of the corpus."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from regard.training.settings import Settings, read_settings

__all__ = ["PICTURES", "data_defaults", "model_defaults", "training_defaults"]

HELD_OUT = 0.05
PICTURES = 64  # of a batch, where training.batch_rows says nothing


def data_defaults(table: Mapping[str, Any]) -> dict[str, Any]:
    """The tables, with a larger share held out where there are documents or pictures: a label is less than a text."""
    data = dict(table.get("data", {}))
    if read_settings(table).data.reads in ("documents", "pictures"):
        data.setdefault("held_out", HELD_OUT)
    return {**table, "data": data}


def model_defaults(table: Mapping[str, Any], pairs: int, device: str) -> dict[str, Any]:
    """The tables, with a model chosen from the corpus where they say no more than its kind."""
    preset = "tiny" if pairs < 10_000 else "base" if pairs >= 100_000 and device == "cuda" else "small"
    model = dict(table.get("model", {}))
    if not set(model) - {"kind"}:
        model |= {"preset": preset, "dropout": 0.3 if pairs < 100_000 else 0.1}
    return {**table, "model": model}


def training_defaults(
    table: Mapping[str, Any], settings: Settings, lengths: Int[np.ndarray, "n 2"], budget: int, processes: int
) -> dict[str, Any]:
    """The tables, with what they leave open about training chosen from the corpus: tokens of each source and target."""
    examples = len(lengths)
    epochs = 60 if examples < 10_000 else 40 if examples < 100_000 else 20 if examples < 1_000_000 else 8
    if settings.data.reads == "pictures":
        batches = examples / (settings.training.batch_rows or PICTURES)
    elif settings.data.reads == "documents":  # a label is learned from a document with fewer looks than a translation
        epochs, batches = epochs // 4, int(lengths[:, 0].sum(dtype="int64")) / budget
    else:
        batches = (int(lengths[:, 1].sum(dtype="int64")) + examples) / budget
    training = dict(table.get("training", {}))
    updates = epochs * batches / (processes * training.get("accumulate", 1))
    steps = training.setdefault("steps", min(100_000, max(1_000, math.ceil(updates / 100) * 100)))
    training.setdefault("warmup", max(1, min(4_000, steps // 10)))
    training.setdefault("validate_every", max(50, min(1_000, steps // 20)))
    training.setdefault("patience", 8)
    return {**table, "training": training}
