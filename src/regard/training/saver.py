"""Saving a run in progress as a checkpoint, and restoring it.

The first process writes. What it could not write is an error on every process, so that none waits for the others.
"""

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from regard.errors import CheckpointError, TrainingError
from regard.io import disk
from regard.training.adapters import has_adapters, load_mean_adapters, mean_adapters, plain_weights, trained_weights
from regard.training.checkpoint import Checkpoint, Checkpoints, read_checkpoint, step_name
from regard.training.distributed import Group, gather_all, spread_like
from regard.training.manifest import BASE, read_manifest
from regard.training.settings import TrainingSettings
from regard.training.task import Task
from regard.training.trainer_state import Counters, check_fits, optimiser_tensors, read_counters, restore_optimiser
from regard.training.update import Updater
from regard.training.weights import MovingAverage, check_weights, load_tensors

RAW = "raw."  # before the names of weights as they are, where a checkpoint's are a moving average


class Saver:
    """A writer of a run's checkpoints, which reads them when the run is resumed."""

    def __init__(self, task: Task, settings: TrainingSettings, run: Path, group: Group):
        self.task, self.settings, self.group = task, settings, group
        self.checkpoints = Checkpoints(run, settings.keep)
        self.step = -1  # of the last checkpoint
        self.base: dict[str, Any] | None = None  # size and checksum of base.safetensors, where there are adapters

    # ---- back to where a run was

    def find(self, resume: bool) -> Checkpoint | None:
        """Find and read the checkpoint to resume from, compared with the task; None for a new run."""
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
        """Load the weights with which training continues."""
        raw = {name.removeprefix(RAW): tensor for name, tensor in checkpoint.trainer.items() if name.startswith(RAW)}
        own, where = trained_weights(objective), str(checkpoint.folder / "model.safetensors")
        check_weights(own, checkpoint.model, where)  # of an average, the weights that are not loaded but averaged on
        where = str(checkpoint.folder / "trainer.safetensors") if raw else where
        load_tensors(own, raw or checkpoint.model, where)

    def restore(self, checkpoint: Checkpoint, updater: Updater, ema: MovingAverage | None) -> Counters:
        """Restore the optimiser, the average and the counters of a checkpoint."""
        where = str(checkpoint.folder / "trainer.safetensors")
        restore_optimiser(updater.optimiser, updater.names, updater.parameters, checkpoint.trainer, where)
        if ema is not None:
            ema.values = [
                spread_like(checkpoint.model[name], parameter.detach())
                for name, parameter in zip(updater.names, updater.parameters, strict=True)
            ]
        now = read_counters(checkpoint.folder, checkpoint.manifest)
        self.step = checkpoint.step
        score = self.checkpoints.best_average()
        if score is not None:  # it came after the last step, and is the one to beat
            now.best, now.best_step, now.best_loss = score
        return now

    # ---- what is written

    def save(self, now: Counters, updater: Updater, ema: MovingAverage | None, best: bool) -> None:
        """Write a checkpoint of the current state."""
        updater.read_sums(now)
        first = self.group.first
        trainer = gather_all(optimiser_tensors(updater.optimiser, updater.names, updater.parameters), first)
        weights = gather_all(trained_weights(updater.objective), first)
        self.check_overflow(now, weights)
        if ema is not None:
            trainer |= {f"{RAW}{name}": tensor for name, tensor in weights.items()}
            weights = {**weights, **gather_all(dict(zip(updater.names, ema.values, strict=True)), first)}
        self.step = now.step
        name = step_name(now.step)

        def write() -> None:
            if self.base is None and has_adapters(updater.objective):
                self.write_base(updater.objective)
            self.checkpoints.write(name, weights, trainer, self.manifest(now, best))
            if best:
                self.checkpoints.mark_best(name)
            self.checkpoints.point("last", name)
            # Where validations are fitted to the time there is no regular distance.
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
                tensor.copy_(spread_like(mean[name], tensor.detach()))
        return mean

    def mean_is_best(self, folders: list[Path]) -> bool:
        """Return whether the best checkpoint is the mean of these, saved already."""
        with contextlib.suppress(CheckpointError):
            best = self.checkpoints.best()
            return best is not None and read_manifest(best).get("mean_of") == names_of(folders)
        return False

    def save_mean(self, mean: Mapping[str, Tensor], folders: list[Path], now: Counters, best: bool) -> None:
        """Write the mean of checkpoints as `average`, and as the best if it is."""

        def write() -> None:
            record = self.checkpoints.best_record()
            if best or record is None or record.name != "average":  # one of an earlier end may still be the best
                manifest = {**self.manifest(now, best), "mean_of": names_of(folders)}
                self.checkpoints.write("average", mean, {}, manifest)
            if best:
                self.checkpoints.mark_best("average")

        self.group.in_first(write)

    def write_base(self, objective: nn.Module) -> None:
        """Write the weights that adapters change, once a run."""
        path = self.checkpoints.folder.parent / BASE
        content = save({name: tensor.cpu().contiguous() for name, tensor in plain_weights(objective).items()})
        try:
            disk.write_whole(path, content)
        except OSError as error:
            raise self.checkpoints.write_error(path, error) from error
        self.base = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def manifest(self, now: Counters, best: bool) -> dict[str, Any]:
        """Build the manifest, everything that is not a tensor; a new best one also names the one that it beats."""
        before = self.checkpoints.best_record() if best else None
        better = {} if before is None else {"better_than": before.manifest}
        base = {} if self.base is None else {"base": self.base}
        return {"step": now.step, "counters": now.table(), "task": self.task.fingerprint(), **base, **better}

    def check_overflow(self, now: Counters, weights: Mapping[str, Tensor]) -> None:
        """Stop before saving weights that overflowed: the checkpoint before them is worth more."""
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


def names_of(folders: list[Path]) -> list[str]:
    """Return the names of checkpoints, as the manifest of their mean holds them."""
    return [folder.name for folder in folders]
