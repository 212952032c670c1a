"""A dry run: what would be trained, how much memory it would take and how long, from a few steps of the real thing.

The steps are taken in a process of its own, so that its memory is that of a training and of nothing else, on the data
that are prepared by then, into a folder that is removed. The largest batches come first: they need the most memory, and
they are a warm-up that is not timed. The steps behind them are timed on batches as they come.
"""

import itertools
import math
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from regard.data import Position
from regard.errors import CommandError, RegardError, TrainingError
from regard.machine import peak_memory
from regard.tasks.data_check import check_data
from regard.tasks.run_start import PlannedRun, Started, open_group, plan_run, train_planned
from regard.tasks.settings import Settings
from regard.tasks.task import RunTask
from regard.training import Checkpoints, Counters, Progress, Timetable, TrainingSettings, read_manifest

MINUTES = 0.3  # of measured steps and validations
STEPS = 64  # of them at most
EVERY = 16  # steps between two validations: what they leave in memory grows with the first few
LARGEST = 4  # batches that come first
PLANS = 4000  # batches among which the largest are searched for
Finish = Callable[[Path, Started], object]  # what a training does at its end: its report


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
    progress: Progress,
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
    steps = planned.settings.training.steps
    if resumed is not None:
        steps = max(0, steps - int(read_manifest(Checkpoints(resumed).find("last"))["step"]))
    measured = measure_apart(settings, start, choose, finish)
    steps, every = fit_steps(planned.settings.training, measured, steps)
    return DryRun(planned.settings, planned.facts, measured, steps, every)


def fit_steps(training: TrainingSettings, measured: Measurement, steps: int) -> tuple[int, int]:
    """Return how many of the steps fit into a time limit, where there is one, and the steps between validations."""
    every = training.validate_every
    if training.minutes is None:
        return steps, every
    timetable = Timetable(training)
    timetable.pace, timetable.validation = measured.step, measured.validation
    fitted = timetable.fit(Counters())
    return (fitted.steps if timetable.is_open else min(steps, fitted.steps)), fitted.validate_every


def measure_apart(settings: Settings, base: Path | None, choose: bool, finish: Finish) -> Measurement:
    """Measure a few steps in a new process, which finds the prepared data in the cache."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure_and_send, args=(sender, settings, base, choose, finish), daemon=True)
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


def measure_and_send(sender: Connection, settings: Settings, base: Path | None, choose: bool, finish: Finish) -> None:
    """Measure a few steps in this process, and send the result, or one sentence about what is wrong."""
    try:
        sender.send(measure(settings, base, choose, finish))
    except RegardError as error:
        sender.send(str(error))


def measure(settings: Settings, base: Path | None, choose: bool, finish: Finish) -> Measurement:
    """Take a few steps of a run into a folder that is removed, with one validation, a checkpoint and a report."""
    with tempfile.TemporaryDirectory(prefix="regard-") as folder, open_group(settings.training) as group:
        planned = plan_run(settings, group, Progress(), base=base, choose=choose)
        task, watch = planned.task, Stopwatch(group.device)
        mean, sizes = put_largest_first(task)
        write_seconds = time_writing(task)
        out = Path(folder) / "run"
        out.mkdir()
        started = train_planned(shorten(planned), out, group, watch)
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
        return Measurement(memory, step, validation, len(timed))


def shorten(planned: PlannedRun) -> PlannedRun:
    """Plan the same run for a few steps, each of them recorded, with a validation at the end."""
    few: dict[str, Any] = {
        "steps": STEPS,
        "minutes": MINUTES,
        "fit": (),
        "validate_every": EVERY,
        "log_every": 1,
        "average": 0,
        "track": (),
    }
    return replace(planned, settings=planned.settings.decide(training={**few, "patience": 0}))


class Stopwatch(Progress):
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
        return {number: seconds for number, seconds in timed.items() if number >= LARGEST} or timed


def put_largest_first(task: RunTask) -> tuple[float, list[float]]:
    """Make the stream of a task begin with its largest batches.

    Return the mean size of batches over an epoch, in padded tokens, and a list that gets the size of each one taken.
    """
    first = list(itertools.islice(task.stream(Position()), PLANS))
    epoch = [plan for position, plan in first if position.epoch == 0]
    largest = sorted(epoch, key=lambda plan: batch_size(task, plan), reverse=True)[: LARGEST - 1]
    largest.append(max(epoch, key=lambda plan: int(task.prepared.train.lengths[plan].max())))  # the longest
    largest = (largest * LARGEST)[:LARGEST]
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
