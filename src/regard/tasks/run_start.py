"""Starting a run, from settings to a run folder and the loop; and a dry run, which takes a few steps of the real thing.

What is wrong with the data is said before the first step: what cannot teach is refused, the rest is reported. The files
of training and validation are checked by `regard.data.check`; what a built-in corpus generates is not. With `anyway`,
what would be refused is reported, too. The files that a run was trained on are recorded by their hashes, so that one
which has changed is named when the run is resumed.

The steps of a dry run are taken in a process of its own, so that its memory is that of a training and of nothing else,
on the data that are prepared by then, into a folder that is removed. The largest batches come first: they need the most
memory, and they are a warm-up that is not timed. The steps behind them are timed on batches as they come.
"""

import contextlib
import itertools
import json
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import tomli_w
import torch

from regard import training
from regard.data import (
    CorpusSettings,
    DataSettings,
    Position,
    cache,
    caption_files,
    data_report,
    pairs,
    run_languages,
    sentence_split,
    unknown_words,
)
from regard.errors import CommandError, ConfigError, DataError, RegardError, TrainingError
from regard.io import disk
from regard.machine import most_threads, peak_memory
from regard.tasks.plan import SOURCES, PlannedRun, data_files, plan_run, take_edition
from regard.tasks.settings import Settings, read_settings
from regard.tasks.task import RunTask

FEW = {"pairs": 3_000, "names": 500, "documents": 200}  # examples from which hardly anything is learned
PAIR_WORDS = 4  # of a target, from which pairs are sentences, and no names
INSIST = "--anyway trains all the same"
MINUTES = 0.3  # of measured steps and validations
STEPS = 64  # of them at most
EVERY = 16  # steps between two validations: what they leave in memory grows with the first few
LARGEST_BATCHES = 4  # batches that come first
PLANS = 4000  # batches among which the largest are searched for
Finish = Callable[[Path, "Started"], object]  # what a training does at its end: its report


@dataclass(frozen=True)
class Started(PlannedRun):
    """A run that was trained."""

    result: training.Result


def start(
    config: Mapping[str, Any] | Settings,
    out: Path,
    *,
    resume: bool = False,
    base: Path | None = None,
    progress: training.Progress | None = None,
    choose: bool = False,
    claimed: bool = False,
    anyway: bool = False,
    began: float | None = None,
) -> Started:
    """Train what a configuration describes into the folder `out`.

    `resume` continues where the run in `out` stopped. `base` is a run whose weights and tokenizer are the beginning.
    With `choose`, what the configuration leaves open about model and training is chosen from the corpus. `claimed` says
    that the caller holds the folder already (`regard.training.folder.claim`). `anyway` trains on data that are refused.
    `began` is the `time.monotonic()` from which the run's seconds count, and training.minutes with them; by default it
    is now.
    """
    began = time.monotonic() if began is None else began
    settings = config if isinstance(config, Settings) else read_settings(config)
    if resume:
        settings = take_edition(settings, out / "config.toml")
    with open_group(settings.training) as group:
        quiet = training.Progress() if progress is None or not group.first else progress
        with contextlib.nullcontext() if claimed else training.run_folder.claim(out, resume, group):
            remarks = None
            if not resume:  # what cannot teach stops all processes
                remarks = group.in_first(lambda: check_data(settings, based=base is not None, anyway=anyway))
            planned = plan_run(settings, group, quiet, resumed=out if resume else None, base=base, choose=choose)
            for remark in remarks or ():
                quiet.say(remark)
            return train_planned(planned, out, group, quiet, resume=resume, began=began)


@contextlib.contextmanager
def open_group(given: training.TrainingSettings) -> Iterator[training.Group]:
    """Group the processes that train together, inside the block, with the settings' threads and device."""
    if given.threads:
        if given.threads > most_threads():
            raise ConfigError(
                "training.threads",
                f"{given.threads} given, expected at most {most_threads()} on this machine, which has "
                f"{os.cpu_count()} cores",
            )
        torch.set_num_threads(given.threads)
    group = training.Group(given.device, given.shard)
    try:
        training.uses_bf16(given, group.device)  # refused before anything is made
        training.check_trackers(given.track)
        yield group
    finally:
        group.leave()


def train_planned(
    planned: PlannedRun,
    out: Path,
    group: training.Group,
    progress: training.Progress,
    *,
    resume: bool = False,
    began: float | None = None,
) -> Started:
    """Train a planned run into a claimed folder."""
    settings, prepared = planned.settings, planned.task.prepared

    def ready() -> None:
        write_config(out / "config.toml", settings)
        if prepared.tokenizers is not None:
            save_whole(out / "tokenizer.json", prepared.tokenizers.dumps())
        words = prepared.words if settings.row.has_source else prepared.target_words
        save_whole(out / unknown_words.FILE, None if words is None else unknown_words.format_words(words))
        record_sources(out, settings.data)
        if "translate" in planned.task.actions:
            data = settings.data
            tags = [*([corpus.tag for corpus in data.training] or [None]), *(corpus.tag for corpus in data.rehearsed)]
            languages = run_languages.profile_corpus(prepared.train, prepared.tokenizers, tags)
            has_letters = languages.source is not None or languages.targets
            save_whole(out / run_languages.FILE, languages.dumps() if has_letters else None)
            share = sentence_split.count_sentences(prepared.train, prepared.tokenizers.source, tags)
            save_whole(out / sentence_split.FILE, share.dumps())

    result = training.Trainer(planned.task, settings.training, out, progress, group, began).run(resume, ready)
    training.adapters.fold_adapters(planned.task.model)
    return Started(settings, planned.task, planned.facts, result)


def write_config(path: Path, settings: Settings) -> None:
    """Write the settings as TOML, whole or not at all."""
    save_whole(path, tomli_w.dumps(settings.table()))


def save_whole(path: Path, content: str | None) -> None:
    """Write a file of a run folder, whole or not at all; without content, remove that of an earlier training."""
    try:
        if content is None:
            path.unlink(missing_ok=True)
        else:
            disk.write_whole(path, content)
    except OSError as error:
        raise TrainingError(f"{path}: not written, {disk.reason(error)}") from error


def record_sources(run: Path, data: DataSettings) -> None:
    """Write the hash of every file of the data into a run folder."""
    path = run / SOURCES
    try:
        hashes = {str(each.absolute()): cache.digest(each) for each in data_files(data)}
        disk.write_whole(path, json.dumps(hashes, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise TrainingError(f"{path}: not written, {disk.reason(error)}") from error


# ---- what is wrong with the data


def check_data(settings: Settings, *, based: bool = False, anyway: bool = False) -> list[str]:
    """Check the files of a run; return a line for each thing that is wrong, or raise a DataError for what cannot teach.

    `based` says that training starts from another run, which makes few examples enough; with `anyway` nothing is
    refused.
    """
    lines = list[str]()
    for number, (files, report) in enumerate(report_data(settings)):
        fatal = report.fatal
        if fatal is not None and not anyway:
            raise DataError(f"{files}: {fatal.text}; {INSIST}")
        lines += [f"{files}: {finding.text}" for finding in report.findings]
        if number == 0 and not based and not settings.data.builtin:  # the first that is trained on
            lines += describe_few(settings, files, report)
    return lines


def missing_files(data: DataSettings) -> list[str]:
    """Return the files of the data that are not there."""
    files = [path for corpus in (*data.training, *data.validation) for path in corpus.files]
    files += filter(None, (data.documents, data.valid_documents, data.labels, data.captions, data.valid_captions))
    return [path for path in files if not Path(path).exists()]


def report_data(settings: Settings) -> Iterator[tuple[str, data_report.DataReport]]:
    """Yield the files of each corpus that is trained on or validated on, with the report on it."""
    data = settings.data
    if data.reads == "documents":
        paths = [] if data.builtin else [data.documents, data.valid_documents]
        for path in filter(None, paths):
            corpus = data.labelled(path)
            text, label = corpus.target_column, corpus.source_column
            swap = f"--set data.label_column={label} --set data.text_column={text}"
            yield path, data_report.check_documents(pairs(corpus, labelled=True), swap)
    elif data.reads == "pictures":
        if data.labels:
            labels = caption_files.read_labels(data.encoded(data.labels))
            rows = ((picture.strip(), label.strip()) for picture, label in labels.items())
            yield data.labels, data_report.check_documents(rows, "put the picture first and its label behind it")
        for path in filter(None, (data.captions, data.valid_captions)):
            captions = itertools.chain.from_iterable(caption_files.read_captions(data.encoded(path)).captions.values())
            yield path, data_report.check_texts(captions, "caption", "captions")
    else:
        for corpus in (*data.training, *data.validation):
            files = " and ".join(dict.fromkeys(corpus.files))
            if settings.row.has_source:
                yield files, data_report.check_pairs(pairs(corpus), *side_names(corpus))
            else:
                yield files, data_report.check_texts(target for _, target in pairs(corpus))


def side_names(corpus: CorpusSettings) -> list[tuple[str, str]]:
    """Return the names of the files of the two sides, as short as they can be told apart; none where there is one."""
    if corpus.source is None or corpus.target is None or corpus.source == corpus.target:
        return []
    short = Path(corpus.source).name, Path(corpus.target).name
    return [short if short[0] != short[1] else (corpus.source, corpus.target)]


def describe_few(settings: Settings, files: str, report: data_report.DataReport) -> list[str]:
    """Describe what can be expected of few examples, and what to do instead."""
    if settings.data.reads == "documents":
        if report.rows >= FEW["documents"]:
            return []
        return [
            f"{files}: {report.rows:,} documents are few; compare the score with the baselines at the end of training, "
            "and label more if it is no better"
        ]
    if settings.data.reads == "pictures" or not settings.row.has_source:
        return []
    kind = "pairs" if report.words >= PAIR_WORDS else "names"
    if report.rows >= FEW[kind]:
        return []
    what = "most new sentences come out wrong" if kind == "pairs" else "many new ones come out wrong"
    return [
        f"{files}: {report.rows:,} pairs are few to learn from alone, and {what}; start from a trained model (regard "
        "import FOLDER --out RUN, then add --from RUN), or give more pairs"
    ]


# ---- a dry run


@dataclass(frozen=True)
class Measurement:
    """The time and memory of the measured steps."""

    memory: int | None  # bytes at most: of the process, or of the GPU that it trains on
    step: float  # seconds of a step of average size
    validation: float  # seconds of a validation of a trained model, and of the checkpoint behind it
    steps: int  # that were timed


@dataclass(frozen=True)
class DryRun:
    """The plan of a training run, with its estimated memory and time."""

    settings: Settings
    facts: list[tuple[str, str]]
    measured: Measurement
    steps: int  # that are left to take
    every: int  # of them there is a validation

    @property
    def validations(self) -> int:
        """Count the validations in these steps."""
        return math.ceil(self.steps / self.every)

    @property
    def seconds(self) -> float:
        """Estimate how long the training takes from its first step to its last, if it is not stopped early."""
        whole = self.steps * self.measured.step + self.validations * self.measured.validation
        minutes = self.settings.training.minutes
        return whole if minutes is None else min(whole, 60 * minutes)


def dry_run(
    settings: Settings,
    progress: training.Progress,
    finish: Finish,
    *,
    resumed: Path | None = None,
    base: Path | None = None,
    choose: bool = False,
    anyway: bool = False,
) -> DryRun:
    """Plan a run, and measure a few steps of it; `finish` is the work at the end of a training.

    Of a run that would be `resumed` the weights are those of its best checkpoint, and the steps those that are left.
    `anyway` measures on data that cannot teach.
    """
    start = resumed or base
    with open_group(settings.training) as group:
        if group.world > 1:
            raise CommandError(f"--dry-run: {group.world} processes given, expected one; leave torchrun out")
        remarks = [] if resumed is not None else check_data(settings, based=base is not None, anyway=anyway)
        planned = plan_run(settings, group, progress, base=start, choose=choose)
    for remark in remarks:
        progress.say(remark)
    given = planned.settings.training
    steps, every = given.steps, given.validate_every
    if resumed is not None:
        steps = max(0, steps - int(training.read_manifest(training.Checkpoints(resumed).find("last"))["step"]))
    measured = measure_apart(settings, start, choose, finish)
    if given.minutes is not None:
        timetable = training.Timetable(given)
        timetable.pace, timetable.validation = measured.step, measured.validation
        fitted = timetable.fit(training.Counters())
        steps, every = fitted.steps if timetable.is_open else min(steps, fitted.steps), fitted.validate_every
    return DryRun(planned.settings, planned.facts, measured, steps, every)


def measure_apart(settings: Settings, base: Path | None, choose: bool, finish: Finish) -> Measurement:
    """Measure a few steps in a new process, which finds the prepared data in the cache."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(sender, settings, base, choose, finish), daemon=True)
    process.start()
    sender.close()
    try:
        answer = receiver.recv()
    except EOFError:
        process.join()
        raise TrainingError(
            f"the measured steps ended with status {process.exitcode} and without a result, perhaps out of memory; "
            "make training.batch_tokens or the model smaller"
        ) from None
    process.join()
    if isinstance(answer, str):
        raise TrainingError(answer)
    measured: Measurement = answer
    return measured


def measure(sender: Connection, settings: Settings, base: Path | None, choose: bool, finish: Finish) -> None:
    """Take a few steps of a run into a folder that is removed, with one validation, a checkpoint and a report.

    The result is sent, or one sentence about what is wrong.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="regard-") as folder, open_group(settings.training) as group:
            planned = plan_run(settings, group, training.Progress(), base=base, choose=choose)
            task, watch = planned.task, Stopwatch(group.device)
            mean, sizes = put_largest_first(task)
            write_seconds = time_writing(task)
            out = Path(folder) / "run"
            out.mkdir()
            # A few steps, each of them recorded, with a validation at the end.
            few: dict[str, Any] = {
                "steps": STEPS,
                "minutes": MINUTES,
                "fit": (),
                "validate_every": EVERY,
                "patience": 0,
            }
            short = planned.settings.decide(training={**few, "log_every": 1, "average": 0, "track": ()})
            started = train_planned(replace(planned, settings=short), out, group, watch)
            validation = watch.now() - watch.last
            finish(out, started)
            timed, each = watch.timed(), started.settings.training.accumulate
            own = [size for number in timed for size in sizes[number * each : (number + 1) * each]]
            # To the size of an average batch, as a few may be smaller or larger than most.
            step = sum(timed.values()) / len(timed) * mean * len(own) / sum(own)
            validation -= sum(write_seconds[-1:]) * (1 - trained_share(task))
            memory = peak_memory()
            if group.device.type == "cuda":
                memory = torch.cuda.max_memory_reserved(group.device)
            sender.send(Measurement(memory, step, validation, len(timed)))
    except RegardError as error:
        sender.send(str(error))


class Stopwatch(training.Progress):
    """A stopwatch that notes how long each step took, except for one after a validation."""

    def __init__(self, device: torch.device):
        self.device = device
        self.last = 0.0  # when the last step was done
        self.validated = False  # since then
        self.seconds: list[float | None] = []

    def begin(self, title: str, facts: Any, steps: int | None) -> None:
        self.last = self.now()

    def step(self, record: Mapping[str, Any]) -> None:
        before, self.last = self.last, self.now()
        self.seconds.append(None if self.validated else self.last - before)
        self.validated = False

    def valid(self, record: Mapping[str, Any]) -> None:
        self.validated = True

    def now(self) -> float:
        """Return the current time, after all work that was begun is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.monotonic()

    def timed(self) -> dict[int, float]:
        """Return the seconds of each step, by its number from 0, except for those of the largest batches."""
        timed = {number: seconds for number, seconds in enumerate(self.seconds) if seconds is not None}
        return {number: seconds for number, seconds in timed.items() if number >= LARGEST_BATCHES} or timed


def put_largest_first(task: RunTask) -> tuple[float, list[float]]:
    """Make the stream of a task begin with its largest batches.

    Return the mean size of batches over an epoch, in padded tokens, and a list that gets the size of each one taken.
    """
    first = list(itertools.islice(task.stream(Position()), PLANS))
    epoch = [plan for position, plan in first if position.epoch == 0]
    largest = sorted(epoch, key=lambda plan: batch_size(task, plan), reverse=True)[: LARGEST_BATCHES - 1]
    largest.append(max(epoch, key=lambda plan: int(task.prepared.train.lengths[plan].max())))  # the longest
    largest = (largest * LARGEST_BATCHES)[:LARGEST_BATCHES]
    mean, sizes, original = sum(batch_size(task, plan) for plan in epoch) / len(epoch), list[float](), task.stream

    def stream(position: Position) -> Iterator[tuple[Position, Any]]:
        for place, plan in itertools.chain(((Position(), plan) for plan in largest), original(position)):
            sizes.append(batch_size(task, plan))
            yield place, plan

    task.stream = stream  # type: ignore[method-assign]
    return mean, sizes


def batch_size(task: RunTask, plan: Any) -> float:
    """Return how large a batch is, both sides padded to their longest."""
    lengths = task.prepared.train.lengths[plan]
    return float(len(lengths) * (lengths.max(axis=0).sum() + 2))


def time_writing(task: RunTask) -> list[float]:
    """Make a task that writes texts in its validation note how long that takes."""
    seconds: list[float] = []
    write = getattr(task, "write", None)
    if write is None:
        return seconds

    def timed(*arguments: Any) -> Any:
        began = time.monotonic()
        result = write(*arguments)
        seconds.append(time.monotonic() - began)
        return result

    task.write = timed  # type: ignore[attr-defined]
    return seconds


def trained_share(task: RunTask) -> float:
    """Return the share of the writing time that a trained model needs, whose outputs are as long as the references.

    A model that has learned nothing writes until it is stopped, or stops at once.
    """
    samples = getattr(task, "validation_samples", [])
    tokenizers = task.prepared.tokenizers
    if not samples or tokenizers is None:
        return 1.0
    outputs = tokenizers.target.encode_batch([each.output for each in samples])
    references = tokenizers.target.encode_batch([each.reference for each in samples])
    return sum(len(each) + 1 for each in references) / sum(len(each) + 1 for each in outputs)
