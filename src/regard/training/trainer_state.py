"""The state that a checkpoint holds beside the weights: the run's counters, the optimiser, and what it was made
with.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import show_value
from regard.errors import CheckpointError, ConfigError
from regard.models import FLOATS, kinds
from regard.training.distributed import spread_like
from regard.training.manifest import check_key, is_count, is_number
from regard.training.settings import FITTED
from regard.training.task import Position, Task


@dataclass
class Counters:
    """The counters of a run: where it stands."""

    step: int = 0
    position: Position = Position(0, 0)
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    best_loss: float | None = None  # of the best, on validation: between two with the same metric it decides
    lowest: float | None = None  # the lowest validation loss
    waited: int = 0  # validations since the best, or since the lowest loss
    sums: dict[str, float] = field(default_factory=dict)  # of the losses since the last record
    skipped: int = 0
    validated: int | None = None  # the step of the last validation
    fitted: dict[str, float] = field(default_factory=dict)  # to a time limit (`regard.training.timetable`)

    def compare(self, figures: Mapping[str, float], metric: str) -> bool:
        """Note a validation, and return whether it is the best so far.

        Where the metric is the same the loss decides, and patience waits for either: BLEU may be 0 for long.
        """
        if not figures:  # with nothing held out there is nothing to wait for
            return False
        # Without finite scores a label may still be right, by chance; a task of one's own may have no loss.
        value, loss = figures.get(metric, math.nan), figures.get("loss", 0.0)
        rank = (value if metric == "loss" else -value, loss)
        best = None if self.best is None else self.best if metric == "loss" else -self.best
        best_loss = math.inf if self.best_loss is None else self.best_loss
        better = math.isfinite(value) and math.isfinite(loss) and (best is None or rank < (best, best_loss))
        fell = math.isfinite(loss) and (self.lowest is None or loss < self.lowest)
        if better:
            self.best, self.best_step, self.best_loss = value, self.step, loss
        if fell:
            self.lowest = loss
        self.waited = 0 if better or fell else self.waited + 1
        return better

    def table(self) -> dict[str, Any]:
        """Return the counters as a manifest holds them; the step stands beside them there."""
        return {**{key: value for key, value in asdict(self).items() if key != "step"}, "position": [*self.position]}


def is_position(value: object) -> bool:
    """Return whether a value is a position in the data: an epoch and a batch."""
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))


def is_sums(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def is_fitted(value: object) -> bool:
    """Return whether a value is what was fitted to a time limit: whole numbers by keys, and seconds."""
    return is_sums(value) and all(
        is_count(each) if name in FITTED else math.isfinite(each) and each >= 0
        for name, each in value.items()  # type: ignore[attr-defined]
    )


OPTIONAL = ("best_loss", "lowest", "validated", "fitted")  # that runs of before do not have
COUNTER_CHECKS = (
    ("position", is_position, "an epoch and a batch"),
    ("seconds", is_number, "a number"),
    *(
        (key, lambda value: value is None or is_number(value), "a number or null")
        for key in ("best", "best_loss", "lowest")
    ),
    ("best_step", is_count, "a number of steps"),
    ("waited", is_count, "a number of validations"),
    ("sums", is_sums, "a table of numbers"),
    ("skipped", is_count, "a number of steps"),
    ("fitted", is_fitted, "a table of numbers from 0 on"),
    ("validated", lambda value: value is None or is_count(value), "a number of steps or null"),
)


def read_counters(folder: Path, manifest: Mapping[str, Any]) -> Counters:
    """Read and check the counters of a checkpoint."""
    where = str(folder / "manifest.json")
    table = check_key(manifest, "counters", lambda value: isinstance(value, dict), "a table", where)
    for key in table:
        if key not in Counters.__dataclass_fields__:
            raise CheckpointError(f"{where}: counters.{key} given, which this version of regard does not know")
    for key, right, expected in COUNTER_CHECKS:
        if key not in OPTIONAL or key in table:
            check_key(table, key, right, expected, where, "counters.")
    now = Counters(manifest["step"], **{**table, "position": Position(*table["position"])})
    if "validated" not in table:  # of an earlier version, of which nobody knows
        now.validated = now.step
    return now


def optimiser_tensors(
    optimiser: torch.optim.Optimizer, names: Sequence[str], parameters: Sequence[nn.Parameter]
) -> dict[str, Tensor]:
    """Collect an optimiser's tensors, by the names of the weights."""
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
    where: str,
) -> None:
    """Restore the optimiser's tensors; `where` is their file, for messages."""
    for name, parameter in zip(names, parameters, strict=True):
        state = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            if f"optimiser.{key}.{name}" in tensors:
                tensor = tensors[f"optimiser.{key}.{name}"]
                shape = [] if key == "step" else list(parameter.shape)
                if list(tensor.shape) != shape or tensor.dtype not in FLOATS:
                    kind = str(tensor.dtype).removeprefix("torch.")
                    actual = f"{list(tensor.shape)} of {kind}, expected {shape} of float32"
                    raise CheckpointError(f"{where}: tensor optimiser.{key}.{name} is {actual}")
                state[key] = tensor.to(parameter.device) if key == "step" else spread_like(tensor, parameter)
        if state:
            optimiser.state[parameter] = state


def initialise_optimiser(optimiser: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    """Create AdamW's state of each weight now, where it would be created in its first step."""
    for parameter in parameters:
        if not optimiser.state[parameter]:
            optimiser.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            }


def check_fits(task: Task, manifest: Mapping[str, Any], folder: Path) -> None:
    """Refuse a checkpoint of another task, model or data."""
    for key, value in task.fingerprint().items():
        check_same(key, manifest.get("task", {}).get(key), value, folder)


def check_same(key: str, stored: Any, value: Any, folder: Path) -> None:
    """Refuse a checkpoint that was made with another value of a key; for the model, name the option."""
    if key == "model" and isinstance(stored, Mapping):
        stored = filled_from(stored, folder)
    if isinstance(value, Mapping) and isinstance(stored, Mapping) and stored != value:  # which of its options
        name = next(name for name in {**stored, **value} if stored.get(name) != value.get(name))
        key, stored, value = f"{key}.{name}", stored.get(name), value.get(name)
    if stored != value:
        raise CheckpointError(f"{folder}: made with {key} {show_value(stored)}, but this run has {show_value(value)}")


def filled_from(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Complete the model of a manifest with every option, or raise a CheckpointError that names the wrong one."""
    try:
        return kinds.complete_table(table)
    except ConfigError as error:
        raise CheckpointError(f"{folder / 'manifest.json'}: task.{error.key}: {error.problem}") from None
