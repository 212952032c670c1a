"""Starting a run, from settings to a run folder and the loop; and a dry run, which measures a few real steps.

The files of the data are checked before the first step (`regard.data.check`), but not the output of a built-in
corpus. Data from which a model cannot learn are refused, unless `anyway` is set; other problems are only reported. The
run folder records the hashes of the files, so that resuming the run names the files that have changed.

A dry run takes its steps in a new process, so that it measures the memory of training alone, on the prepared data, and
in a temporary folder. The largest batches come first: they need the most memory, and serve as a warm-up that is not
timed. The steps after them are timed on batches in their usual order.
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

FEW = {"pairs": 3_000, "names": 500, "documents": 200}  # with fewer examples than these a model learns little
PAIR_WORDS = 4  # average words of a target from which pairs are sentences, not names
INSIST = "--anyway trains all the same"
MINUTES = 0.3  # of measured steps and validations
STEPS = 64  # measured steps, at most
EVERY = 16  # steps between two validations: their memory grows over the first few
LARGEST_BATCHES = 4  # number of largest batches at the start
PLANS = 4000  # batches to search for the largest ones
Finish = Callable[[Path, "Started"], object]  # the work at the end of a training: writing its report


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
    """Train a model from a configuration, into the folder `out`.

    `resume` continues the run in `out`. `base` is a run that provides the initial weights and the tokenizer. With
    `choose`, options of model and training that the configuration leaves open are chosen from the corpus. `claimed`
    says that the caller has claimed the folder already (`regard.training.folder.claim`). `anyway` trains even on data
    that would be refused. `began` is the `time.monotonic()` at which the run's seconds and training.minutes start; the
    default is now.
    """
    began = time.monotonic() if began is None else began
    settings = config if isinstance(config, Settings) else read_settings(config)
    if resume:
        settings = take_edition(settings, out / "config.toml")
    with open_group(settings.training) as group:
        quiet = training.Progress() if progress is None or not group.first else progress
        with contextlib.nullcontext() if claimed else training.run_folder.claim(out, resume, group):
            remarks = None
            if not resume:  # refused data stop all processes
                remarks = group.in_first(lambda: check_data(settings, based=base is not None, anyway=anyway))
            planned = plan_run(settings, group, quiet, resumed=out if resume else None, base=base, choose=choose)
            for remark in remarks or ():
                quiet.say(remark)
            return train_planned(planned, out, group, quiet, resume=resume, began=began)


@contextlib.contextmanager
def open_group(given: training.TrainingSettings) -> Iterator[training.Group]:
    """Open the group of processes that train together, inside the block, with the settings' threads and device."""
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
        training.uses_bf16(given, group.device)  # raises an error for a wrong precision before any file is written
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
    """Write the settings as TOML, atomically."""
    save_whole(path, tomli_w.dumps(settings.table()))


def save_whole(path: Path, content: str | None) -> None:
    """Write a file of a run folder atomically; without content, remove the file of an earlier training."""
    try:
        if content is None:
            path.unlink(missing_ok=True)
        else:
            disk.write_whole(path, content)
    except OSError as error:
        raise TrainingError(f"{path}: not written, {disk.reason(error)}") from error


def record_sources(run: Path, data: DataSettings) -> None:
    """Write the hashes of the data's files into a run folder."""
    path = run / SOURCES
    try:
        hashes = {str(each.absolute()): cache.digest(each) for each in data_files(data)}
        disk.write_whole(path, json.dumps(hashes, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise TrainingError(f"{path}: not written, {disk.reason(error)}") from error


# ---- checking the data


def check_data(settings: Settings, *, based: bool = False, anyway: bool = False) -> list[str]:
    """Check the data's files; return a line per problem, or raise a DataError if a model cannot learn from them.

    `based` says that training starts from another run, for which few examples suffice. With `anyway` no data are
    refused.
    """
    lines = list[str]()
    for number, (files, report) in enumerate(report_data(settings)):
        fatal = report.fatal
        if fatal is not None and not anyway:
            raise DataError(f"{files}: {fatal.text}; {INSIST}")
        lines += [f"{files}: {finding.text}" for finding in report.findings]
        if number == 0 and not based and not settings.data.builtin:  # the first corpus of the training data
            lines += describe_few(settings, files, report)
    return lines


def missing_files(data: DataSettings) -> list[str]:
    """Return the files of the data that do not exist."""
    files = [path for corpus in (*data.training, *data.validation) for path in corpus.files]
    files += filter(None, (data.documents, data.valid_documents, data.labels, data.captions, data.valid_captions))
    return [path for path in files if not Path(path).exists()]


def report_data(settings: Settings) -> Iterator[tuple[str, data_report.DataReport]]:
    """Yield the files of each training and validation corpus, with a report on it."""
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
    """Return a pair of names for the files of the two sides, shortened if they stay distinct; none for one file."""
    if corpus.source is None or corpus.target is None or corpus.source == corpus.target:
        return []
    short = Path(corpus.source).name, Path(corpus.target).name
    return [short if short[0] != short[1] else (corpus.source, corpus.target)]


def describe_few(settings: Settings, files: str, report: data_report.DataReport) -> list[str]:
    """Describe what to expect from few examples, and what to do; return an empty list if there are enough."""
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

    memory: int | None  # peak bytes of the process or, on a CUDA GPU, of the GPU
    step: float  # seconds of a step of average size
    validation: float  # seconds of a trained model's validation and checkpoint
    steps: int  # number of timed steps


@dataclass(frozen=True)
class DryRun:
    """The plan of a training run, with its estimated memory and time."""

    settings: Settings
    facts: list[tuple[str, str]]
    measured: Measurement
    steps: int  # steps that are left
    every: int  # steps between two validations

    @property
    def validations(self) -> int:
        """Return the number of validations in these steps."""
        return math.ceil(self.steps / self.every)

    @property
    def seconds(self) -> float:
        """Estimate the seconds from the first step of training to the last, without early stopping."""
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
    """Plan a run, and measure a few steps of it; `finish` is the work at the end of training.

    For a run to resume, `resumed`, this uses the weights of its best checkpoint and the steps that are left. `anyway`
    measures even on data that would be refused.
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
    """Measure a few steps in a new process, which reads the prepared data from the cache."""
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
    """Take a few steps of a run in a temporary folder, with validations, checkpoints and a report.

    Send the Measurement, or the message of an error.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="regard-") as folder, open_group(settings.training) as group:
            planned = plan_run(settings, group, training.Progress(), base=base, choose=choose)
            task, watch = planned.task, Stopwatch(group.device)
            mean, sizes = put_largest_first(task)
            write_seconds = time_writing(task)
            out = Path(folder) / "run"
            out.mkdir()
            # A few steps, each recorded, with a validation every few steps and at the end.
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
            # Scale to the size of an average batch, as the few timed ones may be smaller or larger.
            step = sum(timed.values()) / len(timed) * mean * len(own) / sum(own)
            validation -= sum(write_seconds[-1:]) * (1 - trained_share(task))
            memory = peak_memory()
            if group.device.type == "cuda":
                memory = torch.cuda.max_memory_reserved(group.device)
            sender.send(Measurement(memory, step, validation, len(timed)))
    except RegardError as error:
        sender.send(str(error))


class Stopwatch(training.Progress):
    """A stopwatch that notes how long each step took, except the one after a validation."""

    def __init__(self, device: torch.device):
        self.device = device
        self.last = 0.0  # end of the last step
        self.validated = False  # whether a validation followed the last step
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
        """Return the current time, after the GPU has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.monotonic()

    def timed(self) -> dict[int, float]:
        """Return the seconds of each step by its number from 0, without the largest batches if others were timed."""
        timed = {number: seconds for number, seconds in enumerate(self.seconds) if seconds is not None}
        return {number: seconds for number, seconds in timed.items() if number >= LARGEST_BATCHES} or timed


def put_largest_first(task: RunTask) -> tuple[float, list[float]]:
    """Replace a task's stream by one that starts with its largest batches.

    Return the mean size of an epoch's batches in padded tokens, and a list to which the stream appends the size of each
    batch that it yields.
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
    """Return the size of a batch in padded tokens of both sides."""
    lengths = task.prepared.train.lengths[plan]
    return float(len(lengths) * (lengths.max(axis=0).sum() + 2))


def time_writing(task: RunTask) -> list[float]:
    """Time the method `write` of a task that decodes in its validation; return a list that receives the seconds."""
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
    """Return a trained model's share of the measured decoding time, if its outputs were as long as the references.

    The outputs of an untrained model may run up to the length limit, or end at once.
    """
    samples = getattr(task, "validation_samples", [])
    tokenizers = task.prepared.tokenizers
    if not samples or tokenizers is None:
        return 1.0
    outputs = tokenizers.target.encode_batch([each.output for each in samples])
    references = tokenizers.target.encode_batch([each.reference for each in samples])
    return sum(len(each) + 1 for each in references) / sum(len(each) + 1 for each in outputs)
