"""Starting a run: from settings to prepared data, a task, a run folder and the loop."""

import contextlib
import fcntl
import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import tomli_w
import torch

from regard.data.prepare import Prepared, prepare
from regard.data.settings import DataSettings
from regard.data.tokenizer import Tokenizers
from regard.errors import CheckpointError, ConfigError, RegardError, TrainingError
from regard.training.budget import token_budget
from regard.training.checkpoint import Checkpoints, load_weights, read_checkpoint, read_manifest
from regard.training.distributed import Group
from regard.training.keeping import check_fits
from regard.training.loop import Result, describe, in_bf16, train
from regard.training.predict import Translate, task_of
from regard.training.progress import Progress
from regard.training.settings import Settings, read_settings

__all__ = ["Started", "start", "tokenizers_of", "write_config"]


@dataclass(frozen=True)
class Started:
    """A run that was trained."""

    result: Result
    task: Translate
    settings: Settings
    facts: list[tuple[str, str]]


def start(
    table: Mapping[str, Any],
    out: Path,
    *,
    resume: bool = False,
    base: Path | None = None,
    progress: Progress | None = None,
    choose: bool = False,
) -> Started:
    """Train what a configuration's tables say into the folder `out`.

    `resume` goes on where the run in `out` stopped. `base` is a run whose weights and tokenizer are the beginning. With
    `choose`, what the tables leave open about model and training is chosen from the size of the corpus.
    """
    settings = read_settings(table)
    training = settings.training
    if training.threads:
        torch.set_num_threads(training.threads)
    group = Group(training.device, training.shard)
    quiet = Progress() if progress is None or not group.first else progress
    try:
        check_folder(out, resume)
        run = base or (out if resume else None)
        tokenizers = None if run is None else tokenizers_of(run, read_manifest(best_of(run)))
        prepared = shared(settings, tokenizers, group, quiet)
        if choose:
            table = model_defaults(table, len(prepared.train), group.device.type)
            settings = read_settings(table)
        check_lengths(settings, prepared)
        budget = token_budget(settings, prepared, group)
        if choose:
            tokens = int(prepared.train.lengths[:, 1].sum(dtype="int64")) + len(prepared.train)
            table = training_defaults(table, len(prepared.train), tokens, budget * group.world)
            settings = read_settings(table)
        settings = replace(settings, data=absolute(settings.data))
        settings = replace(settings, training=replace(settings.training, batch_tokens=budget))
        task = task_of(settings, prepared, budget)
        if base is not None:
            found = read_checkpoint(best_of(base), trainer=False)
            load_weights(task.objective, found.model, str(found.folder))
        if resume and (last := Checkpoints(out).last()):  # before the run's own configuration is written over
            check_fits(task, read_manifest(last), last)
        group.wait()
        lock = None
        if group.first:
            out.mkdir(parents=True, exist_ok=True)
            lock = locked(out)
            write_config(out / "config.toml", settings)
            prepared.tokenizers.save(out / "tokenizer.json")
        group.wait()
        with lock or contextlib.nullcontext():
            result = train(task, settings.training, out, progress=quiet, resume=resume, group=group)
        bf16 = in_bf16(settings.training, group.device)
        return Started(result, task, settings, [*task.facts(), ("device", describe(group.device, group.world, bf16))])
    finally:
        group.leave()


def check_folder(out: Path, resume: bool) -> None:
    """Refuse to write over a finished run, and to go on with none."""
    if out.exists() and not out.is_dir():
        raise ConfigError("--out", f"{out} is a file, expected a folder")
    found = Checkpoints(out).last()
    if resume and found is None:
        raise CheckpointError(f"{out}: no checkpoint to go on from")
    if not resume and found is not None:
        raise TrainingError(
            f"{out}: holds a run already ({found.name}); go on with --resume {out}, or give another --out"
        )


def shared(settings: Settings, tokenizers: Tokenizers | None, group: Group, progress: Progress) -> Prepared:
    """The prepared data: encoded by the first process, found in the cache by the others."""
    problem: str | None = None
    prepared = None
    if group.first:
        try:
            prepared = prepare(settings.data, settings.tokenizer, say=progress.say, tokenizers=tokenizers)
        except RegardError as error:
            if group.world == 1:
                raise
            problem = str(error)
    problem = group.same(problem)
    if problem is not None:
        raise TrainingError(problem)
    return prepared or prepare(settings.data, settings.tokenizer, tokenizers=tokenizers)


def model_defaults(table: Mapping[str, Any], pairs: int, device: str) -> dict[str, Any]:
    """The tables, with a model chosen from the corpus where they say no more than its kind."""
    preset = "tiny" if pairs < 10_000 else "base" if pairs >= 100_000 and device == "cuda" else "small"
    model = dict(table.get("model", {}))
    if not set(model) - {"kind"}:
        model |= {"preset": preset, "dropout": 0.3 if pairs < 100_000 else 0.1}
    return {**table, "model": model}


def training_defaults(table: Mapping[str, Any], pairs: int, tokens: int, batch: int) -> dict[str, Any]:
    """The tables, with what they leave open about training chosen from the corpus; `batch` is of all processes."""
    epochs = 60 if pairs < 10_000 else 40 if pairs < 100_000 else 20 if pairs < 1_000_000 else 8
    training = dict(table.get("training", {}))
    update = batch * training.get("accumulate", 1)
    steps = training.setdefault("steps", min(100_000, max(1_000, math.ceil(epochs * tokens / update / 100) * 100)))
    training.setdefault("warmup", max(1, min(4_000, steps // 10)))
    training.setdefault("validate_every", max(50, min(1_000, steps // 20)))
    training.setdefault("patience", 8)
    return {**table, "training": training}


def check_lengths(settings: Settings, prepared: Prepared) -> None:
    """Refuse a model that knows fewer positions than a sentence may have."""
    model, longest = settings.model, int(prepared.train.lengths.max(initial=0)) + 1
    if settings.tokenizer.dropout:  # pieces that are cut anew are more
        longest = settings.data.longest + 1
    counts = getattr(model, "positions", None) == "learned" or getattr(model, "score", None) == "location"
    if counts and model.length < longest:  # type: ignore[attr-defined]
        given = model.length  # type: ignore[attr-defined]
        raise ConfigError(
            "model.length", f"{given} given, expected at least {longest}, the tokens of the longest sentence"
        )


def locked(out: Path) -> IO[bytes]:
    """A lock on a run folder, held while the file is open: two processes that train into one would spoil it."""
    file = open(out / ".lock", "wb")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise TrainingError(f"{out}: another process trains into it; wait for it, or give another --out") from None
    return file


def absolute(data: DataSettings) -> DataSettings:
    """The same files, wherever a later command is run from."""

    def whole(path: str | None) -> str | None:
        return None if path is None else os.path.abspath(path)

    def corpora(given: Any) -> Any:
        return tuple(
            replace(each, source=whole(each.source), target=whole(each.target), file=whole(each.file)) for each in given
        )

    return replace(
        data,
        source=whole(data.source),
        target=whole(data.target),
        corpora=corpora(data.corpora),
        valid_source=whole(data.valid_source),
        valid_target=whole(data.valid_target),
        valid=corpora(data.valid),
    )


def tokenizers_of(run: Path, manifest: Mapping[str, Any]) -> Tokenizers:
    """A run's tokenizers: those that its checkpoint was made with, or none."""
    path = run / "tokenizer.json"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    # Before it is read: a changed byte may be no tokenizer any more, in any way.
    if hashlib.sha256(content).hexdigest() != manifest.get("task", {}).get("tokenizer"):
        raise CheckpointError(f"{path}: damaged, or not the tokenizer that {run} was trained with")
    return Tokenizers.load(path)


def best_of(run: Path) -> Path:
    """The best checkpoint of a run folder."""
    best = Checkpoints(run).best()
    if best is None:
        raise CheckpointError(f"{run}: not a run folder with a checkpoint in it")
    return best


def write_config(path: Path, settings: Settings) -> None:
    """The settings as TOML, whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(tomli_w.dumps(settings.table()), encoding="utf-8")
    os.replace(new, path)
