"""Systems that are trained side by side: the same data and the same budget, a run folder each.

A run that is there already and whole is not trained again, and one that was interrupted goes on: a study of many
systems may be stopped at any time, and its page be written anew from what is there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import read
from regard.errors import CommandError
from regard.run import Run, load
from regard.studies.setting import Setting
from regard.training.checkpoint import Checkpoints, read_manifest
from regard.training.settings import read_settings
from regard.training.start import start

__all__ = ["Trained", "taught", "taught_all"]


@dataclass(frozen=True)
class Trained:
    """A system after its training."""

    name: str
    seed: int
    run: Run
    seconds: float  # of training, validations included
    step: int


def taught_all(study: str, tables: Mapping[str, Mapping[str, Any]], setting: Setting) -> list[Trained]:
    """Every system with every seed, one after the other."""
    return [taught(study, name, table, seed, setting) for name, table in tables.items() for seed in setting.seeds]


def taught(study: str, name: str, table: Mapping[str, Any], seed: int, setting: Setting) -> Trained:
    """One system, trained now or found."""
    folder = setting.out / study / "runs" / f"{'quick-' * setting.quick}{name}-{seed}"
    whole = {**table, "training": {**table["training"], "seed": seed, "device": setting.device}}
    steps = read_settings(whole).training.steps
    found = Checkpoints(folder).last() if folder.exists() else None
    if found is not None:
        check_same(folder, whole)
    if found is None or read_manifest(found)["step"] < steps:
        setting.say(f"training {name}, seed {seed}" + ("" if found is None else ", from where it stopped"))
        result = start(whole, folder, resume=found is not None).result
        if result.why == "signal":
            raise CommandError(f"stopped; the same command goes on from {folder}")
    else:
        setting.say(f"{name}, seed {seed}: found in {folder}")
    last = Checkpoints(folder).last()
    assert last is not None
    manifest = read_manifest(last)
    device = "cuda" if setting.device != "cpu" and cuda() else "cpu"
    return Trained(name, seed, load(folder, device=device), float(manifest["counters"]["seconds"]), manifest["step"])


def check_same(folder: Path, table: Mapping[str, Any]) -> None:
    """Refuse a run that another study, or an earlier form of this one, has left."""
    before, now = read_settings(read(folder / "config.toml")).table(), read_settings(table).table()
    for part in ("model", "data"):
        if different := differing(before[part], now[part]):
            raise CommandError(
                f"{folder}: trained with another {part}.{different[0]}; remove it, or give another --out"
            )


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> Sequence[str]:
    """Keys whose values are not the same."""
    return sorted(key for key in {*one, *other} if one.get(key) != other.get(key))


def cuda() -> bool:
    """Whether there is a GPU."""
    import torch

    return torch.cuda.is_available()
