"""Training of a study's systems with the same data and budget, each in its own run folder.

A complete run is not trained again, and an interrupted one is resumed: a study can be stopped at any time, and its page
can be rewritten from existing runs. This module also measures translation models.
"""

import math
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.alignment import selection
from regard.config import read
from regard.decoding import batches, first_model
from regard.errors import CommandError, RegardError
from regard.inspection import Cell
from regard.run import Run, load
from regard.tasks import complete_run_table, prepare_data, read_settings, start
from regard.training import Checkpoints, read_manifest
from regard_studies import Setting
from regard_studies.corpora import AlignedPairs, Pairs
from regard_studies.seed_statistics import SeedStatistics, over_seeds

BUDGET = 16_384  # tokens per side in a batch for scoring on a GPU
BUDGET_CPU = 2048  # tokens per side on other devices
COLUMNS = ("BLEU", "perplexity", "million parameters", "seconds of training")
FORMATS = ("", "", ".2f", ".0f")
Tables = Mapping[str, Mapping[str, Any]]  # the configuration of each system


@dataclass(frozen=True)
class TrainedSystem:
    """A trained system."""

    name: str
    seed: int
    run: Run
    seconds: float  # of training, including validations
    step: int

    @property
    def parameters(self) -> int:
        """Count the parameters of the trained model."""
        return sum(parameter.numel() for parameter in self.run.model.parameters())


def train_all(study: str, tables: Tables, setting: Setting) -> list[TrainedSystem]:
    """Train every system with every seed, one after the other or `setting.jobs` at a time."""
    jobs = [(name, table, seed) for name, table in tables.items() for seed in setting.seeds]
    if setting.jobs > 1:
        share_data(tables)
        quiet = replace(setting, say=ignore_message)
        # Spawn, because a process that has used a GPU cannot be forked.
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
        setting = quiet  # the processes' messages have been printed
    return [train_or_load(study, *each, setting) for each in jobs]


def train_or_load(study: str, name: str, table: Mapping[str, Any], seed: int, setting: Setting) -> TrainedSystem:
    """Train a system, unless it is already trained, and load it."""
    folder = run_folder(study, name, seed, setting)
    train_into(folder, table, seed, setting, lambda text: setting.say(f"{name}, seed {seed}: {text}"))
    last = Checkpoints(folder).last()
    assert last is not None
    manifest = read_manifest(last)
    return TrainedSystem(
        name, seed, load(folder, device=setting.where), float(manifest["counters"]["seconds"]), manifest["step"]
    )


def training_settings(steps: int, **options: Any) -> dict[str, Any]:
    """Build [training]: a cosine schedule, warm-up of a tenth, one validation of the loss at the end, and `options`."""
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
    """Train a system in a folder, or resume it; do nothing if it is complete. `say` reports which."""
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
    """Encode each corpus into the cache, so that processes do not encode it at the same time."""
    every = [read_settings(table) for table in tables.values()]
    keys: list[tuple[Any, ...]] = []
    for settings in every:
        what = (settings.task, settings.data, settings.tokenizer)
        if what not in keys:
            prepare_data(settings)
            keys.append(what)


def train_in_process(study: str, name: str, table: Mapping[str, Any], seed: int, setting: Setting) -> tuple[bool, str]:
    """Train in a separate process with its share of the CPU's threads; return whether it succeeded, and a message."""
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // setting.jobs))
    messages: list[str] = []
    try:
        train_into(run_folder(study, name, seed, setting), table, seed, setting, messages.append)
        return True, messages[-1].replace("training", "trained")
    except RegardError as error:
        return False, str(error)


def ignore_message(text: str) -> None:
    """Ignore a message; unlike a lambda, this function can be passed to another process."""


def check_same_settings(folder: Path, table: Mapping[str, Any]) -> None:
    """Raise an error if the folder has a run of another study or of an earlier version of this one."""
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


# ---- translators: BLEU, perplexity, and how well they align


@dataclass(frozen=True)
class TranslationFigures:
    """The figures of a system, with a value per seed, and its size."""

    bleu: SeedStatistics
    perplexity: SeedStatistics
    seconds: SeedStatistics
    parameters: int

    @property
    def cells(self) -> list[Cell]:
        """Return the cells of a table row with COLUMNS and FORMATS."""
        return [self.bleu.as_text(), self.perplexity.as_text(".2f"), self.parameters / 1e6, self.seconds.mean]


def translator_training(setting: Setting, steps: int, **options: Any) -> dict[str, Any]:
    """Build [training] of a Transformer for translation, updated with `options`."""
    real, quick = setting.corpora is not None, setting.quick
    usual = {
        "batch_tokens": 8192 if real else 1024 if quick else 4096,
        "rate": 3e-3 if quick else 1.5e-3,
        "smoothing": 0.1 if real else 0.05,
        "validate_rows": 50,
        "metric": "bleu" if real else "exact",
        "keep": 1,
        **({"warmup": steps // 5} if real else {}),
    }
    return training_settings(steps, **usual | options)


def measure_translations(systems: Sequence[TrainedSystem], corpus: Pairs, beam: int = 5) -> TranslationFigures:
    """Measure systems that differ in their seed: BLEU, and perplexity per token of the references."""
    return TranslationFigures(
        over_seeds(systems, lambda each: corpus.bleu(each.run.translate(corpus.sources, beam=beam))),
        over_seeds(systems, lambda each: perplexity(each.run, corpus)),
        over_seeds(systems, lambda each: each.seconds),
        systems[0].parameters,
    )


def perplexity(run: Run, corpus: Pairs) -> float:
    """Return the perplexity per token of the test set's targets, including their ends."""
    totals, tokens = log_probs(run, corpus.sources, corpus.references)
    return math.exp(-sum(totals) / sum(tokens))


def score_heads(run: Run, aligned: AlignedPairs, which: slice = slice(None)) -> list[selection.Reading]:
    """Score every head's alignment of some pairs, for the word that a step writes and for the word that it reads."""
    sides = (aligned.sources[which], run.tokenizers.source), (aligned.targets[which], run.tokenizers.target)
    pairs = list(zip(*(tokenizer.encode_batch(texts) for texts, tokenizer in sides), strict=True))
    return selection.score_heads(first_model(run.model), run.tokenizers, pairs, aligned.gold[which])


def error_rates(run: Run, readings: Sequence[selection.Reading]) -> tuple[float, float]:
    """Return the AER in percent of the alignment layer, for the word written and for the word read."""
    view = first_model(run.model).alignment_attention
    rates = {each.offset: 100 * each.aer for each in readings if each.head is None and each.view == view}
    return rates[0], rates[1]


def log_probs(run: Run, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[float], list[int]]:
    """Compute the log-probability of every target, and its number of tokens, including its end."""
    encoded = [run.tokenizers.source.encode_batch(list(sources)), run.tokenizers.target.encode_batch(list(targets))]
    budget = BUDGET if run.device.type == "cuda" else BUDGET_CPU
    scores = batches.score_pairs(run.model, *encoded, device=run.device, budget=budget)
    return [each.log_prob for each in scores], [len(each.tokens) for each in scores]
