"""Saving the state of a run as a checkpoint, and restoring it: its counters, its optimiser, and the weights.

The first process writes. If it fails, every process raises the error, so that none waits for the others.
"""

import contextlib
import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from regard.config import show_value
from regard.errors import CheckpointError, ConfigError, TrainingError
from regard.io import disk
from regard.models import FLOATS, kinds
from regard.training.adapters import has_adapters, load_mean_adapters, mean_adapters, plain_weights, trained_weights
from regard.training.checkpoint import (
    BASE,
    Checkpoint,
    Checkpoints,
    check_key,
    is_count,
    is_number,
    read_checkpoint,
    read_manifest,
    step_name,
)
from regard.training.distributed import Group, gather_all, shard_like
from regard.training.settings import FITTED, TrainingSettings
from regard.training.task import Position, Task
from regard.training.weights import check_weights, load_tensors

if TYPE_CHECKING:
    from regard.training.update import Updater

RAW = "raw."  # prefix of the current weights' names if the checkpoint's weights are a moving average


@dataclass
class Counters:
    """The counters of a run in progress."""

    step: int = 0
    position: Position = Position(0, 0)
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    best_loss: float | None = None  # validation loss of the best: it breaks ties of the metric
    lowest: float | None = None  # the lowest validation loss
    waited: int = 0  # validations since the metric or the loss last improved
    sums: dict[str, float] = field(default_factory=dict)  # of losses since the last record
    skipped: int = 0
    validated: int | None = None  # the step of the last validation
    fitted: dict[str, float] = field(default_factory=dict)  # the fit to a time limit: `regard.training.loop.Timetable`

    def compare(self, figures: Mapping[str, float], metric: str) -> bool:
        """Note a validation, and return whether it is the best so far.

        The loss breaks ties of the metric. An improvement of either resets patience: BLEU may stay 0 for long.
        """
        if not figures:  # nothing is held out, so patience does not count
            return False
        # Require a finite loss too: a broken model may predict a label by chance. A user's task may report no loss.
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
        """Return the counters as a manifest holds them, without the step, which has its own key there."""
        return {**{key: value for key, value in asdict(self).items() if key != "step"}, "position": [*self.position]}


def is_sums(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def is_fitted(value: object) -> bool:
    """Return whether a value is a valid fit to a time limit: integers under the keys FITTED, seconds under others."""
    return is_sums(value) and all(
        is_count(each) if name in FITTED else math.isfinite(each) and each >= 0
        for name, each in value.items()  # type: ignore[attr-defined]
    )


OPTIONAL = ("best_loss", "lowest", "validated", "fitted")  # keys that checkpoints of earlier versions lack
COUNTER_CHECKS = (
    (
        "position",
        lambda value: isinstance(value, list) and len(value) == 2 and all(map(is_count, value)),
        "an epoch and a batch",
    ),
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


def optimiser_tensors(updater: "Updater") -> dict[str, Tensor]:
    """Collect the optimiser's tensors, named after the weights."""
    return {
        f"optimiser.{key}.{name}": value
        for name, parameter in zip(updater.names, updater.parameters, strict=True)
        for key, value in updater.optimiser.state.get(parameter, {}).items()
    }


def restore_optimiser(updater: "Updater", tensors: Mapping[str, Tensor], where: str) -> None:
    """Restore the optimiser's tensors; error messages name their file, `where`."""
    for name, parameter in zip(updater.names, updater.parameters, strict=True):
        state = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            if f"optimiser.{key}.{name}" in tensors:
                tensor = tensors[f"optimiser.{key}.{name}"]
                shape = [] if key == "step" else list(parameter.shape)
                if list(tensor.shape) != shape or tensor.dtype not in FLOATS:
                    kind = str(tensor.dtype).removeprefix("torch.")
                    actual = f"{list(tensor.shape)} of {kind}, expected {shape} of float32"
                    raise CheckpointError(f"{where}: tensor optimiser.{key}.{name} is {actual}")
                state[key] = tensor.to(parameter.device) if key == "step" else shard_like(tensor, parameter)
        if state:
            updater.optimiser.state[parameter] = state


def check_fits(task: Task, manifest: Mapping[str, Any], folder: Path) -> None:
    """Refuse a checkpoint whose task, model or data differ from this run's."""
    for key, value in task.fingerprint().items():
        check_same(key, manifest.get("task", {}).get(key), value, folder)


def check_same(key: str, stored: Any, value: Any, folder: Path) -> None:
    """Refuse a checkpoint whose value of a key differs from this run's; of a model, name the option that differs."""
    if key == "model" and isinstance(stored, Mapping):
        stored = complete_model(stored, folder)
    if isinstance(value, Mapping) and isinstance(stored, Mapping) and stored != value:  # find the option that differs
        name = next(name for name in {**stored, **value} if stored.get(name) != value.get(name))
        key, stored, value = f"{key}.{name}", stored.get(name), value.get(name)
    if stored != value:
        raise CheckpointError(f"{folder}: made with {key} {show_value(stored)}, but this run has {show_value(value)}")


def complete_model(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Fill in the defaults of a manifest's model options, or raise a CheckpointError that names a wrong option."""
    try:
        return kinds.complete_table(table)
    except ConfigError as error:
        raise CheckpointError(f"{folder / 'manifest.json'}: task.{error.key}: {error.problem}") from None


# ---- in checkpoints


class Saver:
    """A writer of a run's checkpoints, which also restores a run from them."""

    def __init__(self, task: Task, settings: TrainingSettings, run: Path, group: Group):
        self.task, self.settings, self.group = task, settings, group
        self.checkpoints = Checkpoints(run, settings.keep)
        self.step = -1  # of the last checkpoint
        self.base: dict[str, Any] | None = None  # size and checksum of base.safetensors, if the model has adapters

    # ---- restoring

    def find(self, resume: bool) -> Checkpoint | None:
        """Read the checkpoint to resume from, and check that it fits the task; return None for a new run."""
        if self.group.first:
            self.checkpoints.clean()
        self.group.wait()
        if not resume:
            return None
        path = self.checkpoints.last()
        if path is None:
            raise CheckpointError(f"{self.checkpoints.folder}: no checkpoint to resume from")
        checkpoint = read_checkpoint(path, merge=False)
        check_fits(self.task, checkpoint.manifest, checkpoint.folder)
        self.base = checkpoint.manifest.get("base")
        return checkpoint

    def load(self, checkpoint: Checkpoint, objective: nn.Module) -> None:
        """Load the weights from which training continues: the current ones, not their moving average."""
        raw = {name.removeprefix(RAW): tensor for name, tensor in checkpoint.trainer.items() if name.startswith(RAW)}
        own, where = trained_weights(objective), str(checkpoint.folder / "model.safetensors")
        check_weights(own, checkpoint.model, where)  # these may be a moving average, which is not loaded here
        where = str(checkpoint.folder / "trainer.safetensors") if raw else where
        load_tensors(own, raw or checkpoint.model, where)

    def restore(self, checkpoint: Checkpoint, updater: "Updater", ema: list[Tensor] | None) -> Counters:
        """Check and restore the optimiser, the moving average and the counters of a checkpoint."""
        where = str(checkpoint.folder / "trainer.safetensors")
        restore_optimiser(updater, checkpoint.trainer, where)
        if ema is not None:
            ema[:] = [
                shard_like(checkpoint.model[name], parameter.detach())
                for name, parameter in zip(updater.names, updater.parameters, strict=True)
            ]
        where = str(checkpoint.folder / "manifest.json")
        table = check_key(checkpoint.manifest, "counters", dict, "a table", where)
        for key in table:
            if key not in Counters.__dataclass_fields__:
                raise CheckpointError(f"{where}: counters.{key} given, which this version of regard does not know")
        for key, right, expected in COUNTER_CHECKS:
            if key not in OPTIONAL or key in table:
                check_key(table, key, right, expected, where, "counters.")
        # Checkpoints of earlier versions have no key `validated`.
        table = {"validated": checkpoint.step, **table, "position": Position(*table["position"])}
        now = Counters(checkpoint.step, **table)
        self.step = checkpoint.step
        score = self.checkpoints.best_average()
        if score is not None:  # the average was saved after the last step, and is the one to beat
            now.best, now.best_step, now.best_loss = score
        return now

    # ---- writing

    def save(self, now: Counters, updater: "Updater", ema: list[Tensor] | None, best: bool) -> None:
        """Write a checkpoint of the current state."""
        updater.read_sums(now)
        first = self.group.first
        trainer = gather_all(optimiser_tensors(updater), first)
        weights = gather_all(trained_weights(updater.objective), first)
        self.check_overflow(now, weights)
        if ema is not None:
            trainer |= {f"{RAW}{name}": tensor for name, tensor in weights.items()}
            weights = {**weights, **gather_all(dict(zip(updater.names, ema, strict=True)), first)}
        self.step = now.step
        name = step_name(now.step)

        def write() -> None:
            if self.base is None and has_adapters(updater.objective):
                self.write_base(updater.objective)
            self.checkpoints.write(name, weights, trainer, self.manifest(now, best))
            if best:
                self.checkpoints.mark_best(name)
            self.checkpoints.point("last", name)
            # If validations are fitted to the time, they have no regular distance.
            fitted = "validate_every" in self.settings.fit
            self.checkpoints.prune(1 if fitted else self.settings.validate_every)

        self.group.in_first(write)

    def load_mean(self, folders: list[Path], objective: nn.Module) -> dict[str, Tensor]:
        """Load the mean of these checkpoints' weights into the model, and return it."""
        own = trained_weights(objective)
        read = [read_checkpoint(folder, trainer=False, merge=False).model for folder in folders]
        for folder, weights in zip(folders, read, strict=True):
            check_weights(own, weights, str(folder / "model.safetensors"))
        mean = mean_adapters(read)
        if has_adapters(objective):
            load_mean_adapters(objective, mean)
            return mean
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(shard_like(mean[name], tensor.detach()))
        return mean

    def mean_is_best(self, folders: list[Path]) -> bool:
        """Return whether the best checkpoint is the mean of these folders, which was then saved already."""
        with contextlib.suppress(CheckpointError):
            best = self.checkpoints.best()
            return best is not None and read_manifest(best).get("mean_of") == [each.name for each in folders]
        return False

    def save_mean(self, mean: Mapping[str, Tensor], folders: list[Path], now: Counters, best: bool) -> None:
        """Write the mean of checkpoints as `average`, and mark it as the best if it is."""

        def write() -> None:
            record = self.checkpoints.best_record()
            if best or record is None or record.name != "average":  # do not replace an earlier average that is the best
                manifest = {**self.manifest(now, best), "mean_of": [each.name for each in folders]}
                self.checkpoints.write("average", mean, {}, manifest)
            if best:
                self.checkpoints.mark_best("average")

        self.group.in_first(write)

    def write_base(self, objective: nn.Module) -> None:
        """Write the base weights of adapters to base.safetensors, once per run."""
        path = self.checkpoints.folder.parent / BASE
        content = save({name: tensor.cpu().contiguous() for name, tensor in plain_weights(objective).items()})
        try:
            disk.write_whole(path, content)
        except OSError as error:
            raise self.checkpoints.write_error(path, error) from error
        self.base = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def manifest(self, now: Counters, best: bool) -> dict[str, Any]:
        """Build the manifest, all data but tensors; that of a new best checkpoint names the previous best."""
        before = self.checkpoints.best_record() if best else None
        better = {} if before is None else {"better_than": before.manifest}
        base = {} if self.base is None else {"base": self.base}
        return {"step": now.step, "counters": now.table(), "task": self.task.fingerprint(), **base, **better}

    def check_overflow(self, now: Counters, weights: Mapping[str, Tensor]) -> None:
        """Raise a TrainingError before weights with NaN or infinity are saved: the last checkpoint is worth more."""
        bad = next((name for name, tensor in weights.items() if not bool(tensor.isfinite().all())), None)
        if bad := self.group.same(bad):
            raise TrainingError(
                f"step {now.step:,}: the weights are no longer finite ({bad}); lower training.rate; "
                f"{self.last_checkpoint()}"
            )

    def last_checkpoint(self) -> str:
        """Name the checkpoint to resume from, for a message."""
        last = self.checkpoints.last()
        return "no checkpoint was saved" if last is None else f"the last checkpoint is {last}"
