"""Systems that are trained side by side: the same data and the same budget, a run folder each.

A run that is there already and whole is not trained again, and one that was interrupted is resumed: a study of many
systems may be stopped at any time, and its page be written anew from what is there.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.config import read
from regard.errors import CommandError, RegardError
from regard.run import Run, load
from regard.tasks import complete_run_table, prepare_data, read_settings, start
from regard.training import Checkpoints, read_manifest
from regard_studies.setting import Setting

Tables = Mapping[str, Mapping[str, Any]]  # a configuration a system


@dataclass(frozen=True)
class TrainedSystem:
    """A system after its training."""

    name: str
    seed: int
    run: Run
    seconds: float  # of training, validations included
    step: int

    @property
    def parameters(self) -> int:
        """Count the parameters of the trained model."""
        return sum(parameter.numel() for parameter in self.run.model.parameters())


def train_all(study: str, tables: Tables, setting: Setting) -> list[TrainedSystem]:
    """Train every system with every seed, one after the other, or `setting.jobs` at a time."""
    jobs = [(name, table, seed) for name, table in tables.items() for seed in setting.seeds]
    if setting.jobs > 1:
        share_data(tables)
        quiet = replace(setting, say=ignore_message)
        # A process that has used a GPU cannot be forked.
        with ProcessPoolExecutor(setting.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            waiting = [pool.submit(train_in_process, study, *each, quiet) for each in jobs]
            try:
                for (name, _, seed), each in zip(jobs, waiting, strict=True):
                    ok, message = each.result()
                    if not ok:
                        raise CommandError(message)
                    setting.say(f"{name}, seed {seed}: {message}")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        setting = quiet  # what each process did has been printed
    return [train_or_load(study, *each, setting) for each in jobs]


def train_or_load(study: str, name: str, table: Mapping[str, Any], seed: int, setting: Setting) -> TrainedSystem:
    """Train a system, or load it where it was trained before."""
    folder = run_folder(study, name, seed, setting)
    train_into(folder, table, seed, setting, lambda text: setting.say(f"{name}, seed {seed}: {text}"))
    last = Checkpoints(folder).last()
    assert last is not None
    manifest = read_manifest(last)
    return TrainedSystem(
        name, seed, load(folder, device=setting.where), float(manifest["counters"]["seconds"]), manifest["step"]
    )


def training_settings(steps: int, **options: Any) -> dict[str, Any]:
    """Build [training]: a cosine with a tenth of warm-up, validated by its loss at its end, but for the options."""
    usual = {"schedule": "cosine", "warmup": max(1, steps // 10), "smoothing": 0.0, "metric": "loss"}
    return {"steps": steps, "validate_every": steps, **usual, **options}


def group_by_name(systems: Sequence[TrainedSystem]) -> dict[str, list[TrainedSystem]]:
    """Group the systems by name, one per seed, in order."""
    groups: dict[str, list[TrainedSystem]] = {}
    for each in systems:
        groups.setdefault(each.name, []).append(each)
    return groups


def run_folder(study: str, name: str, seed: int, setting: Setting) -> Path:
    """Return the folder of a system's run."""
    return setting.out / study / "runs" / f"{'quick-' * setting.quick}{name}-{seed}"


def train_into(folder: Path, table: Mapping[str, Any], seed: int, setting: Setting, say: Callable[[str], None]) -> None:
    """Train into a folder what is not there yet, with a message before each training."""
    whole = {**table, "training": {**table["training"], "seed": seed, "device": setting.device}}
    steps = read_settings(whole).training.steps
    checkpoint = Checkpoints(folder).last() if folder.exists() else None
    if checkpoint is not None:
        check_same_settings(folder, whole)
        if read_manifest(checkpoint)["step"] >= steps:
            say(f"found in {folder}")
            return
    say("training" if checkpoint is None else "training, from where it stopped")
    result = start(whole, folder, resume=checkpoint is not None).result
    if result.stop_reason == "signal":
        raise CommandError(f"stopped; the same command resumes {folder}")


def share_data(tables: Tables) -> None:
    """Encode each corpus once, into the cache, before several processes would encode it at the same time."""
    every = [read_settings(table) for table in tables.values()]
    keys: list[tuple[Any, ...]] = []
    for settings in every:
        what = (settings.task, settings.data, settings.tokenizer)
        if what not in keys:
            prepare_data(settings)
            keys.append(what)


def train_in_process(study: str, name: str, table: Mapping[str, Any], seed: int, setting: Setting) -> tuple[bool, str]:
    """Train in a separate process, with its share of the machine; return whether it succeeded, and a message."""
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // setting.jobs))
    messages: list[str] = []
    try:
        train_into(run_folder(study, name, seed, setting), table, seed, setting, messages.append)
        return True, messages[-1].replace("training", "trained")
    except RegardError as error:
        return False, str(error)


def ignore_message(text: str) -> None:
    """Ignore a message; a function that can be passed to another process."""


def check_same_settings(folder: Path, table: Mapping[str, Any]) -> None:
    """Refuse a run left by another study, or by an earlier form of this one."""
    own = complete_run_table(read(folder / "config.toml"))
    before, now = read_settings(own).table(), read_settings(table).table()
    for part in ("model", "data"):
        if different := differing_keys(before[part], now[part]):
            raise CommandError(
                f"{folder}: trained with another {part}.{different[0]}; remove it, or give another --out"
            )


def differing_keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> Sequence[str]:
    """List the keys whose values differ."""
    return sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
