"""Summaries of run folders, read from their files without importing torch, so that reading many is quick.

A folder may come from a stranger, be damaged, or be in training right now: summaries leave out what cannot be read.
"""

import contextlib
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from regard.config import read
from regard.errors import CheckpointError, RegardError
from regard.io import disk, packs, reading
from regard.training import Checkpoints, metrics, plain_weights_file, read_manifest

CARD = "card.json"  # of a pack
ON_CARD = ("steps", "metric", "best", "best_step", "scores", "minutes", "date", "licence")  # a summary's fields
COMMANDS = "commands.jsonl"  # one line per training: the date, and the command as typed
LARGEST_HEADER = 16 * 2**20  # bytes of a safetensors file's header
LARGEST_COMMANDS = 8 * 2**20  # bytes of commands.jsonl, at most
DEPTH = 3  # levels of folders to search


@dataclass(frozen=True)
class RunSummary:
    """The summary of a run."""

    folder: str
    task: str
    kind: str
    data: str
    parameters: int | None
    step: int  # of the last checkpoint
    steps: int | None  # configured number of steps; None if it is fitted to a time limit
    metric: str | None  # the metric that selects the best checkpoint
    best: float | None  # the best checkpoint's value of the metric
    best_step: int | None
    scores: dict[str, float]  # all scores of the best checkpoint
    minutes: float | None  # of training
    date: str  # of the last checkpoint
    bytes: int
    commands: tuple[str, ...]  # the commands that trained it
    licence: str | None = None  # as stated in a pack
    adapter: dict[str, int] | None = None  # the rank of its adapters, and the number of their weights

    @property
    def best_text(self) -> str:
        """Format the best score with its metric."""
        if self.metric is None or self.best is None:
            return "–"
        return f"{metrics.metric_name(self.metric)} {metrics.format_value(self.metric, self.best)}"

    @property
    def adapter_text(self) -> str:
        """Format the adapters as they are displayed when training starts."""
        if self.adapter is None:
            return "–"
        count, share = self.adapter["weights"], self.adapter["weights"] / max(1, self.parameters or 0)
        return f"{count:,} weights of rank {self.adapter['rank']} ({100 * share:.2g} %)"

    @property
    def size_text(self) -> str:
        """Format the size on disk in MB or GB."""
        return f"{self.bytes / 1e9:,.1f} GB" if self.bytes >= 1e9 else f"{self.bytes / 1e6:,.1f} MB"

    def table(self) -> dict[str, Any]:
        """Return the summary as JSON holds it."""
        return {**asdict(self), "commands": list(self.commands)}


def find_runs(folder: Path, depth: int = DEPTH) -> Iterator[RunSummary]:
    """Find the run folders in a folder, up to `depth` levels down, sorted by name; or the folder itself if it is a run.

    Links are not followed, and hidden folders are not searched.
    """
    is_run = (folder / "config.toml").is_file() and (folder / "checkpoints").is_dir()
    if is_run:
        with contextlib.suppress(RegardError, OSError):
            yield summarise(folder)
    if is_run or not depth:
        return
    try:
        inside = sorted(each.path for each in os.scandir(folder) if each.is_dir(follow_symlinks=False))
    except OSError:
        return
    for path in map(Path, inside):
        yield from find_runs(path, 0 if path.name.startswith(".") else depth - 1)


def require_run(folder: str | Path) -> None:
    """Refuse a folder that is not a run folder, and a file that is not a pack of a run."""
    if packs.is_file(Path(folder) / "config.toml"):
        return
    if Path(folder).is_file():
        raise CheckpointError(f"{folder}: a file that is not a pack of a run, or a damaged one; expected a run folder")
    if not os.path.lexists(folder):
        raise CheckpointError(f"{folder}: no such folder, expected a run folder; regard runs lists run folders")
    raise CheckpointError(f"{folder}: not a run folder, it has no config.toml; regard runs lists run folders")


def summarise(folder: Path) -> RunSummary:
    """Summarise a run folder, or raise a CheckpointError if it is not one."""
    require_run(folder)
    config = read(folder / "config.toml")
    checkpoints = Checkpoints(folder)
    last = checkpoints.last() or checkpoints.folder / "average"  # in a pack it may be the only checkpoint
    if not packs.is_folder(last):
        raise CheckpointError(f"{folder}: no checkpoint in it; it was not trained")
    packed, manifest = packs.is_pack(folder), read_manifest(last)
    results = read_card(folder) if packed else read_results(folder, table_of(config, "training"), last)
    data, imported = describe_data(table_of(config, "data")), table_of(manifest, "imported")
    if imported and not data and not packed:
        data = f"{imported.get('folder')} (imported, {imported.get('format')})"
    adapter = None
    if "base" in manifest:
        rank, count = table_of(config, "model").get("adapter"), count_parameters(last / "model.safetensors")
        adapter = {"rank": rank, "weights": count} if isinstance(rank, int) and count is not None else None
    return RunSummary(
        folder=str(folder),
        task=str(config.get("task", "translate")),
        kind=str(table_of(config, "model").get("kind", "")),
        data=data,
        parameters=count_parameters(plain_weights_file(last, manifest)),
        step=manifest["step"],
        adapter=adapter,
        **results,
    )


def read_results(folder: Path, training: Mapping[str, Any], last: Path) -> dict[str, Any]:
    """Read a run's scores, its time, its size, and the commands that trained it."""
    records = metrics.read_records(folder / "metrics.jsonl")
    best: dict[str, Any] = next(
        (each for each in reversed(records) if each.get("kind") == "valid" and each.get("best")), {}
    )
    seconds = [each["seconds"] for each in records if isinstance(each.get("seconds"), int | float)]
    metric = training.get("metric") if isinstance(training.get("metric"), str) else None
    value = best.get(metric) if metric is not None else None
    hidden = ("step", "best", "kind", "epoch", "seconds", "samples")
    date = datetime.fromtimestamp((last / "manifest.json").stat().st_mtime).astimezone()
    return {
        "steps": None if training.get("fit") or not isinstance(training.get("steps"), int) else training["steps"],
        "metric": metric,
        "best": float(value) if value is not None and is_finite(value) else None,
        "best_step": best.get("step"),
        "scores": {key: each for key, each in best.items() if key not in hidden and is_finite(each)},
        "minutes": round(seconds[-1] / 60, 2) if seconds else None,
        "date": date.isoformat(timespec="minutes"),
        "bytes": folder_size(folder),
        "commands": read_commands(folder),
    }


def read_card(pack: Path) -> dict[str, Any]:
    """Read the results of a packed run from its card."""
    card = reading.read_json(pack / CARD, CheckpointError)
    fields = {name: card[name] for name in ON_CARD if isinstance(card, dict) and name in card}
    nothing: dict[str, Any] = dict.fromkeys(("steps", "metric", "best", "best_step", "minutes"))
    return {**nothing, "scores": {}, "date": "", "bytes": pack.stat().st_size, "commands": (), **fields}


def is_finite(value: object) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def table_of(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return one table of a configuration, or an empty one if it is missing."""
    table = config.get(name, {})
    return table if isinstance(table, Mapping) else {}


def describe_data(data: Mapping[str, Any]) -> str:
    """Describe the training data by the names of the files, or of the built-in corpus."""

    def name(key: str, table: Mapping[str, Any] = data) -> str:
        return Path(str(table[key])).name

    corpora = data.get("corpora") or []
    if data.get("builtin"):
        pair = f" {data['pair']}" if data["builtin"] == "phrasebook" and "pair" in data else ""
        return f"{data['builtin']}{pair} (built-in)"
    if data.get("source"):
        return f"{name('source')}, {name('target')}" if data.get("target") else name("source")
    if corpora and isinstance(corpora[0], Mapping):
        first = corpora[0].get("file") or corpora[0].get("source") or ""
        return Path(str(first)).name + (f" and {len(corpora) - 1} more" if len(corpora) > 1 else "")
    return next((name(key) for key in ("documents", "captions", "labels", "images") if data.get(key)), "")


def count_parameters(path: Path) -> int | None:
    """Count a model's parameters from the shapes in a safetensors file's header; return None if it cannot be read."""
    try:
        with packs.open_binary(path) as (file, _):
            (size,) = struct.unpack("<Q", file.read(8))
            header = reading.parse_json(file.read(size)) if size <= LARGEST_HEADER else None
        shapes = [each["shape"] for name, each in header.items() if name.startswith("model.")]  # type: ignore[union-attr]
        return sum(math.prod(shape) for shape in shapes)
    except (OSError, reading.Unreadable, struct.error, AttributeError, TypeError, KeyError):
        return None


def folder_size(folder: Path) -> int:
    """Return the bytes of all files in a folder, without following links."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def record_command(folder: Path, command: str) -> None:
    """Append the command that trains a run to its commands.jsonl; ignore errors such as a full disk."""
    stamp = datetime.now().astimezone().isoformat(timespec="seconds")
    with (
        contextlib.suppress(OSError),
        open(folder / COMMANDS, "a", encoding="utf-8", errors="replace", newline="\n", opener=disk.no_link) as file,
    ):
        file.write(json.dumps({"date": stamp, "command": command}, ensure_ascii=False) + "\n")


def read_commands(folder: Path) -> tuple[str, ...]:
    """Read the commands that trained a run, oldest first; runs of earlier versions have none."""
    try:
        lines = reading.read_bytes(folder / COMMANDS, LARGEST_COMMANDS).splitlines()
    except (OSError, reading.Unreadable):
        return ()
    commands = list[str]()
    for line in lines:
        with contextlib.suppress(reading.Unreadable):
            record = reading.parse_json(line)
            if isinstance(record, dict) and isinstance(record.get("command"), str):
                commands.append(record["command"])
    return tuple(commands)
