"""What a checkpoint keeps of a run beside the weights: where it stands, the optimiser, and what it was made with."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.models.kinds import filled
from regard.training.distributed import like
from regard.training.task import Position, Task

__all__ = ["Counters", "begin_optimiser", "check_fits", "optimiser_tensors", "restore_optimiser"]


@dataclass
class Counters:
    """Where a run stands."""

    step: int = 0
    position: Position = Position(0, 0)
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    waited: int = 0  # validations since the best
    sums: dict[str, float] = field(default_factory=dict)  # of the losses since the last record
    skipped: int = 0

    def table(self) -> dict[str, Any]:
        """As a manifest holds it; the step stands beside it there."""
        return {**{key: value for key, value in asdict(self).items() if key != "step"}, "position": [*self.position]}

    @classmethod
    def of(cls, step: int, table: Mapping[str, Any]) -> "Counters":
        """As it was."""
        return cls(step, **{**table, "position": Position(*table["position"]), "sums": dict(table["sums"])})


def optimiser_tensors(
    optimiser: torch.optim.Optimizer, names: Sequence[str], parameters: Sequence[nn.Parameter]
) -> dict[str, Tensor]:
    """What an optimiser keeps, by the names of the weights."""
    return {
        f"optimiser.{key}.{name}": value
        for name, parameter in zip(names, parameters, strict=True)
        for key, value in optimiser.state.get(parameter, {}).items()
    }


def restore_optimiser(
    optimiser: torch.optim.Optimizer,
    names: Sequence[str],
    parameters: Sequence[nn.Parameter],
    tensors: Mapping[str, Tensor],
) -> None:
    """Give it back."""
    for name, parameter in zip(names, parameters, strict=True):
        state = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            if f"optimiser.{key}.{name}" in tensors:
                tensor = tensors[f"optimiser.{key}.{name}"]
                state[key] = tensor.to(parameter.device) if key == "step" else like(tensor, parameter)
        if state:
            optimiser.state[parameter] = state


def begin_optimiser(optimiser: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    """What AdamW keeps of a weight, made now, where it would be made in its first step."""
    for parameter in parameters:
        if not optimiser.state[parameter]:
            optimiser.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            }


def check_fits(task: Task, manifest: Mapping[str, Any], folder: Path) -> None:
    """Refuse a checkpoint of something else."""
    kept = manifest.get("task", {})
    for key, value in task.fingerprint().items():
        given = kept.get(key)
        if key == "model" and isinstance(given, Mapping):
            given = filled(given)
        if isinstance(value, Mapping) and isinstance(given, Mapping) and given != value:  # which of its options
            name = next(name for name in {**given, **value} if given.get(name) != value.get(name))
            key, given, value = f"{key}.{name}", given.get(name), value.get(name)
        if given != value:
            raise CheckpointError(f"{folder}: made with {key} {given!r}, and this run has {value!r}")
