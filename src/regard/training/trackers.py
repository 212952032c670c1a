"""Trackers: services that receive the curves of a training beside metrics.jsonl. Each is a row of a table.

    regard train … --track wandb --track mlflow            # or training.track = ["wandb", "mlflow"]
    regard.register(tracker=TrackerRow("mine", open_mine))  # in a plugin

A package is imported only where a person has asked for its tracker by name. TensorBoard's files stay in the run folder:
they are written wherever it is installed. A tracker is a mirror: where it fails, training goes on without it.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from regard.config import read, show_value, suggestion
from regard.errors import ConfigError, MissingExtraError, RegardError
from regard.io import disk, reading
from regard.plugins import register, table

FILE = "trackers.json"  # what each service calls the run, so that a resumed one is continued there
LONGEST = 300  # characters of what a package says
PROJECT = "regard"  # the project or experiment, where the service's own variables name no other


class Tracker(Protocol):
    """A run as a tracking service knows it."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Send the figures of a step, by names such as step/loss and valid/bleu."""

    def close(self) -> None:
        """Send what is held, and say that the run has ended."""


@dataclass(frozen=True)
class TrackerRow:
    """A row of the table: `begin(folder, resume_step)` begins a run, or continues the one of this folder."""

    name: str
    begin: Callable[[Path, int | None], Tracker]
    package: str | None = None  # that must be installed
    extra: str = ""  # of Regard, which brings it


class Trackers:
    """The trackers of a run; one that fails is reported once and then left out."""

    def __init__(self, trackers: Mapping[str, Tracker]):
        self.trackers = dict(trackers)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Send the figures of a step to all."""
        self.attempt("log", step, figures)

    def close(self) -> None:
        """End the run with all of them."""
        self.attempt("close")
        self.trackers.clear()

    def attempt(self, method: str, *arguments: Any) -> None:
        """Call a method of every tracker, and leave out those that fail: training does not depend on a network."""
        for name, tracker in list(self.trackers.items()):
            try:
                getattr(tracker, method)(*arguments)
            except Exception as error:  # whatever a service's own package raises
                del self.trackers[name]
                if name != "tensorboard":
                    print(f"regard: {name}: {reason_of(error)}; no more curves are sent to it", file=sys.stderr)


def check_trackers(names: Sequence[str]) -> None:
    """Refuse a tracker that does not exist, or whose package is not installed, before training starts."""
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(
                "training.track", f"{show_value(name)} given, no such tracker{suggestion(name, TRACKERS)}"
            )
        row = TRACKERS[name]
        if row.package is not None and importlib.util.find_spec(row.package) is None:
            raise MissingExtraError(row.package, row.extra)


def open_trackers(names: Sequence[str], folder: Path, resume_step: int | None) -> Trackers:
    """Begin with the trackers that are named, and with TensorBoard where it is installed."""
    check_trackers(names)
    trackers = dict[str, Tracker]()
    for name in dict.fromkeys(("tensorboard", *names)):
        if name not in names and importlib.util.find_spec("tensorboard") is None:
            continue
        try:
            trackers[name] = TRACKERS[name].begin(folder, resume_step)
        except RegardError:
            raise
        except Exception as error:  # a service that cannot be reached, a package that is not whole
            if name in names:
                print(f"regard: {name}: {reason_of(error)}; no curves are sent to it", file=sys.stderr)
    return Trackers(trackers)


def reason_of(error: Exception) -> str:
    """Return a service's error message, shortened to one line."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def read_configuration(folder: Path) -> dict[str, Any]:
    """Read the configuration of the run, each key with the name of its table before it."""
    with contextlib.suppress(RegardError, OSError):
        tables = read(folder / "config.toml")
        flat = {name: value for name, value in tables.items() if not isinstance(value, dict)}
        parts = ((name, part) for name, part in tables.items() if isinstance(part, dict))
        return flat | {f"{name}.{key}": value for name, part in parts for key, value in part.items()}
    return {}


def read_names(folder: Path) -> dict[str, Any]:
    """Read the names that services gave the run before."""
    with contextlib.suppress(RegardError):
        names = reading.read_json(folder / FILE, RegardError)
        return names if isinstance(names, dict) else {}
    return {}


def known_name(folder: Path, service: str, resume_step: int | None) -> str | None:
    """Return the name that a service gave the run before, where it is resumed."""
    name = read_names(folder).get(service) if resume_step else None
    return name if isinstance(name, str) else None


def keep_name(folder: Path, service: str, name: str) -> None:
    """Store the name that a service gave the run."""
    with contextlib.suppress(OSError):
        disk.write_whole(folder / FILE, json.dumps({**read_names(folder), service: name}, indent=1) + "\n")


class TensorBoard:
    """TensorBoard's files, in the folder `tensorboard` of the run."""

    def __init__(self, folder: Path, resume_step: int | None):
        from torch.utils.tensorboard import SummaryWriter

        purge = None if resume_step is None else resume_step + 1
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=purge)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Write the figures of a step."""
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is held."""
        self.writer.close()


class WeightsAndBiases:
    """A run at Weights & Biases; WANDB_PROJECT, WANDB_MODE and the like are its own variables."""

    def __init__(self, folder: Path, resume_step: int | None):
        wandb = importlib.import_module("wandb")
        name = known_name(folder, "wandb", resume_step)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.resolve().name,
            dir=str(folder),
            config=read_configuration(folder),
            id=name,
            resume=None if name is None else "allow",
        )
        keep_name(folder, "wandb", str(self.run.id))

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Send the figures of a step."""
        self.run.log(dict(figures), step=step)

    def close(self) -> None:
        """End the run."""
        self.run.finish()


class MlFlow:
    """A run of MLflow, at MLFLOW_TRACKING_URI or in MLflow's default place."""

    def __init__(self, folder: Path, resume_step: int | None):
        mlflow = importlib.import_module("mlflow")
        self.client = mlflow.MlflowClient()
        name = known_name(folder, "mlflow", resume_step)
        if name is None:
            title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self.client.get_experiment_by_name(title)
            number = self.client.create_experiment(title) if experiment is None else experiment.experiment_id
            name = str(self.client.create_run(number, run_name=folder.resolve().name).info.run_id)
            for key, value in read_configuration(folder).items():
                self.client.log_param(name, key, str(value)[:500])
            keep_name(folder, "mlflow", name)
        self.name = name

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Send the figures of a step."""
        for key, value in figures.items():
            self.client.log_metric(self.name, key, value, step=step)

    def close(self) -> None:
        """Say that the run has ended."""
        self.client.set_terminated(self.name)


TRACKERS: MutableMapping[str, TrackerRow] = table("tracker")
for each in [
    TrackerRow("tensorboard", TensorBoard, "tensorboard", "tensorboard"),
    TrackerRow("wandb", WeightsAndBiases, "wandb", "wandb"),
    TrackerRow("mlflow", MlFlow, "mlflow", "mlflow"),
]:
    register(tracker=each)
