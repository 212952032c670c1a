"""A run with a checkpoint."""

from pathlib import Path

import torch

from regard.training.checkpoint import (
    Checkpoints,
)

MODEL = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(3), "c": torch.zeros(0), "d": torch.ones(2).bfloat16()}


TRAINER = {"step": torch.tensor(4.0)}


def written(run: Path, name: str = "step-000004", keep: int = 2, **facts) -> Checkpoints:
    checkpoints = Checkpoints(run, keep)
    checkpoints.write(name, MODEL, TRAINER, {"step": 4, **facts})
    return checkpoints
