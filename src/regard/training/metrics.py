"""The numbers of a training run: records as JSON lines, their format for people, and trackers that receive them.

A record is {"kind": "step", "step": 500, "loss": 3.21, …} or {"kind": "valid", "step": 500, "bleu": 12.4, …}.

Trackers are services that receive the curves of a run, in addition to metrics.jsonl. Each is a row of a table.

    regard train … --track wandb --track mlflow            # or training.track = ["wandb", "mlflow"]
    regard.register(tracker=TrackerRow("mine", open_mine))  # in a plugin

Regard imports a tracker's package only if the user names the tracker. TensorBoard is the exception: its files stay in
the run folder, and Regard writes them whenever it is installed. If a tracker fails, training continues without it.
"""

import contextlib
import importlib
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from regard.config import read
from regard.errors import CheckpointError, ConfigError, MissingExtraError, RegardError, TrainingError
from regard.io import disk, reading
from regard.messages import no_such
from regard.plugins import register, table

NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "exact": "exact match", "aer": "AER", "f1": "F1", "rate": "rate"}
NAMES |= {"cider": "CIDEr", "rouge": "ROUGE-L"}
SHARES = {"exact", "accuracy", "aer", "f1", "precision", "recall"}  # between 0 and 1, shown as percentages
COUNTED = {"step", "steps", "epoch", "skipped"}  # keys whose values are counts
WORDS = {"kind", "unit"}
LARGEST_METRICS = 256 * 2**20  # bytes of a metrics.jsonl that is read
UNREPORTED = ("count", "tokens", "since", "lost", "bad", "waited")  # keys of a run's sums that are not losses
POINTS = {"bleu", "chrf", "ter", "perplexity", "rouge"}
TRACKERS_FILE = "trackers.json"  # each service's identifier of the run, so that a resumed run continues there
LONGEST_REASON = 300  # characters of a package's error message
PROJECT = "regard"  # the project or experiment, unless the service's own environment variables name another


class Metrics:
    """A writer of a run's records to metrics.jsonl, which also sends them to the trackers named in `track`.

    On opening it removes an incomplete last line, left by a crash. When a run is resumed at `resume_step`, it also
    removes the records of later steps, so that a curve has no point twice, and the validation record of `resume_step`
    if that step must be validated again (not `validated`).
    """

    def __init__(
        self, path: Path, resume_step: int | None = None, track: Sequence[str] = (), *, validated: bool = True
    ):
        self.path = path
        if path.exists():
            self._repair(resume_step, validated)
        self._file = open(self.path, "ab", buffering=0, opener=disk.no_link)  # noqa: SIM115
        self._trackers = open_trackers(track, self.path.parent, resume_step)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        """Append one record of a `kind`: "step", "valid" or another."""
        numbers = {key: plain_number(value) for key, value in record.items()}
        # Write a whole line at once, so that other programs that read the file see no partial line.
        line = (json.dumps({"kind": kind, **numbers}, ensure_ascii=False, allow_nan=False) + "\n").encode(
            errors="replace"
        )
        try:
            while line:
                line = line[self._file.write(line) :]
            if kind in ("valid", "average"):  # a checkpoint follows, or a resumed run relies on the record
                os.fsync(self._file.fileno())
        except OSError as error:
            raise self._write_error(error) from error
        step = numbers.get("step")
        if isinstance(step, int):
            figures = {
                f"{kind}/{key}": float(value)
                for key, value in record.items()
                if isinstance(value, int | float) and not isinstance(value, bool) and key not in ("step", "steps")
            }
            if figures:
                self._trackers.log(step, figures)

    def close(self) -> None:
        """Close the file, and let the trackers send their buffers."""
        self._file.close()
        self._trackers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write_error(self, error: OSError) -> TrainingError:
        begun = any((self.path.parent / "checkpoints").glob("step-*"))  # a run without checkpoints cannot be resumed
        again = "resume with --resume" if begun else "start again"
        return TrainingError(f"{self.path}: not written, {disk.reason(error)}. Make room, then {again}")

    def _repair(self, resume_step: int | None, validated: bool = True) -> None:
        """Keep only complete records, and those up to the step from which the run is resumed."""
        before = read_whole(self.path)
        lines = []
        for line in before.splitlines(keepends=True):
            record = parse_record(line)
            if record is None or not line.endswith(b"\n"):
                continue
            step = record.get("step")
            if resume_step is not None and isinstance(step, int | float):
                again = step == resume_step and not validated and record.get("kind") == "valid"
                if step > resume_step or again:
                    continue
            lines.append(line)
        complete = b"".join(lines)
        if complete != before:
            try:
                disk.write_whole(self.path, complete)
            except OSError as error:
                raise self._write_error(error) from error


def read_records(path: str | Path) -> list[dict[str, Any]]:
    """Read the records of a metrics.jsonl in order, skipping incomplete lines; return none if there is no file."""
    path = Path(path)
    if not path.exists():
        return []
    records = map(parse_record, read_whole(path).splitlines())
    return [record for record in records if record is not None and all(fits_key(*pair) for pair in record.items())]


def mean_losses(sums: Mapping[str, float], count: float) -> dict[str, float]:
    """Average a run's sums for the report: divide each by its own count (`guided` by `guided_count`), or by `count`."""
    own = {name: value for name, value in sums.items() if name.endswith("_count")}
    reported = [name for name in sums if name not in UNREPORTED and name not in own]
    return {name: sums[name] / max(1.0, own.get(f"{name}_count", count)) for name in reported}


def metric_name(key: str) -> str:
    """Return the display name of a metric: BLEU, chrF, exact match."""
    return NAMES.get(key, key.replace("_", " "))


def format_value(key: str, value: Any) -> str:
    """Format a metric's value for people: BLEU as 12.4, a share as 83.1%, a learning rate as 4.2e-4."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,d}".replace("-", "−")
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "NaN")
    if key == "rate":
        digits, power = f"{value:.1e}".split("e")
        text = f"{digits}e{int(power)}" if value else "0"
    elif key in SHARES and 0.0 <= value <= 1.0:
        text = f"{value:.1%}"
    elif key in POINTS and abs(value) < 1e5:
        text = f"{value:.1f}"
    elif key == "tokens_per_second":
        text = f"{value:,.0f}"
    elif key == "loss" and abs(value) < 1e4:
        text = f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"
    else:
        text = f"{value:.4g}"
    return text if key == "rate" else text.replace("-", "−")


def format_duration(seconds: float) -> str:
    """Format a duration for people: 40 s, 12 min, 3 h 05 min, 2 d 4 h."""
    if not math.isfinite(seconds) or seconds < 0:
        return "–"
    if seconds < 1:
        return "under 1 s"
    if round(seconds) < 90:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def format_clock(seconds: float) -> str:
    """Format a duration as a clock that changes every second: 0:40, 12:05, 3:05:10, 2 d 4:00:01."""
    minutes, second = divmod(max(0, math.floor(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    if not hours:
        return f"{minute}:{second:02d}"
    days, hour = divmod(hours, 24)
    return (f"{days} d " if days else "") + f"{hour}:{minute:02d}:{second:02d}"


def read_whole(path: Path) -> bytes:
    try:
        return reading.read_bytes(path, LARGEST_METRICS)
    except reading.Unreadable as error:
        raise CheckpointError(f"{path}: {error}") from None


def parse_record(line: bytes) -> dict[str, Any] | None:
    try:
        record = reading.parse_json(line)
    except reading.Unreadable:  # incomplete, or not UTF-8
        return None
    return record if isinstance(record, dict) else None


def fits_key(key: str, value: Any) -> bool:
    """Return whether a record may hold this value under this key."""
    if key in COUNTED:
        return type(value) is int and 0 <= value < 2**63
    if key in WORDS:
        return isinstance(value, str)
    if key == "samples":
        return isinstance(value, list)
    return value is None or isinstance(value, bool | str) or (isinstance(value, int | float) and abs(value) < 2**1000)


def plain_number(value: Any) -> Any:
    """Convert infinity and NaN, which JSON cannot hold, to None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- trackers


class Tracker(Protocol):
    """A run at a tracking service."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Send the figures of a step, under names such as step/loss and valid/bleu."""

    def close(self) -> None:
        """Send what is buffered, and mark the run as ended."""


@dataclass(frozen=True)
class TrackerRow:
    """A row of the table of trackers: `begin(folder, resume_step)` begins a run, or continues this folder's run."""

    name: str
    begin: Callable[[Path, int | None], Tracker]
    package: str | None = None  # the package that must be installed
    extra: str = ""  # Regard's extra that installs it


class Trackers:
    """The trackers of a run; one that fails is reported once and then removed."""

    def __init__(self, trackers: Mapping[str, Tracker]):
        self.trackers = dict(trackers)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Send the figures of a step to all trackers."""
        self.attempt("log", step, figures)

    def close(self) -> None:
        """End the run at all trackers."""
        self.attempt("close")
        self.trackers.clear()

    def attempt(self, method: str, *arguments: Any) -> None:
        """Call a method of every tracker, and remove those that fail: training does not depend on a network."""
        for name, tracker in list(self.trackers.items()):
            try:
                getattr(tracker, method)(*arguments)
            except Exception as error:  # a service's package may raise any error
                del self.trackers[name]
                if name != "tensorboard":
                    print(f"regard: {name}: {reason_of(error)}; no more curves are sent to it", file=sys.stderr)


def check_trackers(names: Sequence[str]) -> None:
    """Raise an error for a tracker that does not exist, or whose package is not installed."""
    for name in names:
        if name not in TRACKERS:
            raise ConfigError("training.track", no_such("tracker", name, TRACKERS))
        row = TRACKERS[name]
        if row.package is not None and importlib.util.find_spec(row.package) is None:
            raise MissingExtraError(row.package, row.extra)


def open_trackers(names: Sequence[str], folder: Path, resume_step: int | None) -> Trackers:
    """Open the named trackers, and TensorBoard if it is installed."""
    check_trackers(names)
    trackers = dict[str, Tracker]()
    for name in dict.fromkeys(("tensorboard", *names)):
        if name not in names and importlib.util.find_spec("tensorboard") is None:
            continue
        try:
            trackers[name] = TRACKERS[name].begin(folder, resume_step)
        except RegardError:
            raise
        except Exception as error:  # an unreachable service, or an incomplete package
            if name in names:
                print(f"regard: {name}: {reason_of(error)}; no curves are sent to it", file=sys.stderr)
    return Trackers(trackers)


def reason_of(error: Exception) -> str:
    """Return a service's error message, shortened to one line."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def read_configuration(folder: Path) -> dict[str, Any]:
    """Read the run's configuration as a flat table, with keys such as training.rate; return {} if that fails."""
    with contextlib.suppress(RegardError, OSError):
        tables = read(folder / "config.toml")
        flat = {name: value for name, value in tables.items() if not isinstance(value, dict)}
        parts = ((name, part) for name, part in tables.items() if isinstance(part, dict))
        return flat | {f"{name}.{key}": value for name, part in parts for key, value in part.items()}
    return {}


def read_names(folder: Path) -> dict[str, Any]:
    """Read the identifiers that services gave the run."""
    with contextlib.suppress(RegardError):
        names = reading.read_json(folder / TRACKERS_FILE, RegardError)
        return names if isinstance(names, dict) else {}
    return {}


def known_name(folder: Path, service: str, resume_step: int | None) -> str | None:
    """Return the identifier that a service gave the run, or None unless the run is resumed."""
    name = read_names(folder).get(service) if resume_step else None
    return name if isinstance(name, str) else None


def keep_name(folder: Path, service: str, name: str) -> None:
    """Store the identifier that a service gave the run."""
    with contextlib.suppress(OSError):
        disk.write_whole(folder / TRACKERS_FILE, json.dumps({**read_names(folder), service: name}, indent=1) + "\n")


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
        """Write what is buffered."""
        self.writer.close()


class WeightsAndBiases:
    """A run at Weights & Biases, configured by its environment variables: WANDB_PROJECT, WANDB_MODE and so on."""

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
    """A run in MLflow, at MLFLOW_TRACKING_URI or in MLflow's default location."""

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
        """Mark the run as ended."""
        self.client.set_terminated(self.name)


TRACKERS: MutableMapping[str, TrackerRow] = table("tracker")
for each in [
    TrackerRow("tensorboard", TensorBoard, "tensorboard", "tensorboard"),
    TrackerRow("wandb", WeightsAndBiases, "wandb", "wandb"),
    TrackerRow("mlflow", MlFlow, "mlflow", "mlflow"),
]:
    register(tracker=each)
