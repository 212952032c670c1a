"""The numbers of a training run: one JSON record a line, and their format for people.

A record is {"kind": "step", "step": 500, "loss": 3.21, …} or {"kind": "valid", "step": 500, "bleu": 12.4, …}.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, TrainingError
from regard.io import disk, reading
from regard.training.trackers import open_trackers

NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "exact": "exact match", "aer": "AER", "f1": "F1", "rate": "rate"}
NAMES |= {"cider": "CIDEr", "rouge": "ROUGE-L"}
SHARES = {"exact", "accuracy", "aer", "f1", "precision", "recall"}  # between 0 and 1, shown as percentages
COUNTED = {"step", "steps", "epoch", "skipped"}  # what every reader counts with
WORDS = {"kind", "unit"}
LARGEST = 256 * 2**20  # bytes of a metrics.jsonl that is read
UNREPORTED = ("count", "tokens", "since", "lost", "bad", "waited")  # of a run's sums: not losses
POINTS = {"bleu", "chrf", "ter", "perplexity", "rouge"}


class Metrics:
    """A writer of a run's records to metrics.jsonl, which mirrors them to the trackers named in `track`.

    `path` is the file, or the run folder that it stands in. A last line that a crash tore is cut off. After a resume at
    `resume_step`, records of later steps are cut off too, so that a curve has no point twice, and where that step's
    validation is still to come (not `validated`), what was recorded of one.
    """

    def __init__(
        self, path: str | Path, resume_step: int | None = None, track: Sequence[str] = (), *, validated: bool = True
    ):
        path = Path(path)
        self.path = path / "metrics.jsonl" if path.is_dir() else path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            self._mend(resume_step, validated)
        self._file = open(self.path, "ab", buffering=0, opener=disk.no_link)  # noqa: SIM115
        self._trackers = open_trackers(track, self.path.parent, resume_step)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        """Append one record of a `kind`: "step", "valid" or another word."""
        numbers = {key: plain_number(value) for key, value in record.items()}
        # A whole line in one write, so that whoever reads along sees no half of one.
        line = (json.dumps({"kind": kind, **numbers}, ensure_ascii=False, allow_nan=False) + "\n").encode(
            errors="replace"
        )
        try:
            while line:
                line = line[self._file.write(line) :]
            if kind in ("valid", "average"):  # a checkpoint follows, or a resumed run asks whether it did
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
        """Close the file, and let trackers send what they hold."""
        self._file.close()
        self._trackers.close()

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write_error(self, error: OSError) -> TrainingError:
        begun = any((self.path.parent / "checkpoints").glob("step-*"))  # before the first there is nothing to resume
        again = "resume with --resume" if begun else "start again"
        return TrainingError(f"{self.path}: not written, {disk.reason(error)}. Make room, then {again}")

    def _mend(self, resume_step: int | None, validated: bool = True) -> None:
        """Keep only complete records, up to and including the step of the resume."""
        before = _bytes(self.path)
        lines = []
        for line in before.splitlines(keepends=True):
            record = _parsed(line)
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
    """Read the records of a metrics.jsonl, in order; none where there is no file. A torn line is skipped."""
    path = Path(path)
    if not path.exists():
        return []
    records = map(_parsed, _bytes(path).splitlines())
    return [record for record in records if record is not None and all(_fits(*pair) for pair in record.items())]


def mean_losses(sums: Mapping[str, float], count: float) -> dict[str, float]:
    """Average a run's sums for the report: each divided by the count or its own, as `guided` by `guided_count`."""
    own = {name: value for name, value in sums.items() if name.endswith("_count")}
    reported = [name for name in sums if name not in UNREPORTED and name not in own]
    return {name: sums[name] / max(1.0, own.get(f"{name}_count", count)) for name in reported}


def metric_name(key: str) -> str:
    """Name a number as people do: BLEU, chrF, exact match."""
    return NAMES.get(key, key.replace("_", " "))


def format_value(key: str, value: Any) -> str:
    """Format a number as people write it: 12.4 BLEU, a share as 83.1%, a learning rate as 4.2e-4."""
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
    """Format a duration as people write it: 40 s, 12 min, 3 h 05 min, 2 d 4 h."""
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
    """Format a time that moves every second: 0:40, 12:05, 3:05:10, 2 d 4:00:01."""
    minutes, second = divmod(max(0, math.floor(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    if not hours:
        return f"{minute}:{second:02d}"
    days, hour = divmod(hours, 24)
    return (f"{days} d " if days else "") + f"{hour}:{minute:02d}:{second:02d}"


def _bytes(path: Path) -> bytes:
    try:
        return reading.read_bytes(path, LARGEST)
    except reading.Unreadable as error:
        raise CheckpointError(f"{path}: {error}") from None


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = reading.parse_json(line)
    except reading.Unreadable:  # torn, or not UTF-8
        return None
    return record if isinstance(record, dict) else None


def _fits(key: str, value: Any) -> bool:
    """Return whether a value could have been written under its key."""
    if key in COUNTED:
        return type(value) is int and 0 <= value < 2**63
    if key in WORDS:
        return isinstance(value, str)
    if key == "samples":
        return isinstance(value, list)
    return value is None or isinstance(value, bool | str) or (isinstance(value, int | float) and abs(value) < 2**1000)


def plain_number(value: Any) -> Any:
    """Convert infinity and NaN, which JSON does not have, to None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
