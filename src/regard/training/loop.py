"""The loop: take batches, update, record, validate, save. It knows a Task, and nothing about what is learned.

One update takes `accumulate × processes` consecutive batches of the task's stream; their losses are divided by what
they count together, so that the update is the same however many processes share it. Everything random in an update is
drawn from a generator that is seeded anew by (seed, step, process): with the step, the place in the stream, the weights
and the optimiser's state, a resumed run is the run that was not stopped, bit by bit.

How batches become a step of the optimiser, `regard.training.update` says; how a run becomes a checkpoint and is
restored from one, `regard.training.saver`.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.errors import TrainingError
from regard.training.adapters import describe_adapters, merge_adapters
from regard.training.checkpoint import step_name
from regard.training.distributed import Group, allow_tf32, describe_device
from regard.training.folder import claim
from regard.training.metrics import Metrics, mean_losses, metric_name, read_records
from regard.training.progress import Progress
from regard.training.saver import Saver
from regard.training.settings import TrainingSettings
from regard.training.task import Task
from regard.training.timetable import StopCriteria, Timetable
from regard.training.trainer_state import Counters
from regard.training.update import Prefetch, Updater, rate_at
from regard.training.weights import MovingAverage, swap_values

__all__ = ["Result", "Trainer", "train"]

HOPELESS = 100  # steps in a row that were not finite


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    step: int
    best: float | None
    best_step: int
    why: str  # finished, patience, minutes or signal
    seconds: float
    signal: int | None = None  # its number, where one stopped the run
    first: int = 0  # the step from which this process trained


def train(
    task: Task,
    settings: TrainingSettings,
    run: Path,
    *,
    progress: Progress | None = None,
    resume: bool = False,
    group: Group | None = None,
    claimed: bool = False,
    ready: Callable[[], None] | None = None,
    began: float | None = None,
) -> Result:
    """Train a task into a run folder; with `resume`, from its last checkpoint on.

    `claimed` says that the caller holds the folder already (`regard.training.folder.claim`). `ready` is called in the
    first process when nothing is left that could be refused, before anything is written. `began` is the
    `time.monotonic()` from which the run's seconds count, where its data were prepared before.
    """
    group = group or Group(settings.device, settings.shard)
    with contextlib.nullcontext() if claimed else claim(run, resume, group):
        return Trainer(task, settings, run, progress or Progress(), group, began).run(resume, ready)


class Trainer:
    """A run in progress."""

    def __init__(
        self,
        task: Task,
        settings: TrainingSettings,
        run: Path,
        progress: Progress,
        group: Group,
        began: float | None = None,
    ):
        self.task, self.settings, self.folder, self.group = task, settings, run, group
        self.progress = progress if group.first else Progress()
        self.saver = Saver(task, settings, run, group)
        self.now = Counters()
        self.began = began  # the moment from which this process's seconds count
        self.origin = time.monotonic()  # that from which the run's would, had it never stopped
        self.timetable = Timetable(settings)
        self.loss_is_finite = True  # of the last validation

    # ---- from the first step to the last

    def run(self, resume: bool, ready: Callable[[], None] | None = None) -> Result:
        """Run the whole training, in order."""
        resumed = self.prepare(resume)
        if ready is not None and self.group.first:
            ready()
        self.group.wait()
        if resumed and self.group.first:
            self.saver.checkpoints.mend(step_name(self.now.step))
        metrics = None
        if self.group.first:  # without what is to come again
            path, validated = self.folder / "metrics.jsonl", self.now.validated == self.now.step
            metrics = Metrics(path, self.now.step, self.settings.track, validated=validated)
        device, bf16 = self.group.device, self.updater.bf16
        facts = [
            *self.task.facts(),
            *describe_adapters(self.objective),
            ("best checkpoint by", metric_name(self.task.metric)),
        ]
        facts += [("device", describe_device(device, self.group.world, bf16)), ("path", self.updater.path())]
        title = f"{self.folder}" + (f", from step {self.now.step:,}" if resumed else "")
        self.progress.begin(title, facts, None if self.timetable.is_open else self.settings.steps)
        self.progress.limit(self.timetable.limit)
        self.objective.train()
        criteria = StopCriteria(self.group, self.settings, self.progress, self.timetable)
        with metrics or contextlib.nullcontext(), criteria, allow_tf32(bf16 and device.type == "cuda"):
            try:
                why = self.all_steps(metrics, criteria)
            except torch.OutOfMemoryError as error:  # not of a batch, which would be redone
                last = self.saver.checkpoints.last()
                raise TrainingError(
                    f"step {self.now.step:,}: out of memory: make training.batch_tokens or the model smaller; the last "
                    f"checkpoint is {last}"
                ) from error
        now, signal = self.now, criteria.signal_number if why == "signal" else None
        return Result(now.step, now.best, now.best_step, why, now.seconds, signal, self.timetable.first_step)

    def prepare(self, resume: bool) -> bool:
        """Set up weights, optimiser and counters, new or from the last checkpoint; return whether there was one."""
        torch.manual_seed(self.settings.seed)
        checkpoint = self.saver.find(resume)
        self.objective: nn.Module = self.task.objective.to(self.group.device)
        if checkpoint is not None:
            self.saver.load(checkpoint, self.objective)
        self.group.wrap(self.objective)
        self.updater = Updater(self.task, self.objective, self.settings, self.group, self.progress)
        decay = self.settings.ema
        self.ema = MovingAverage(self.updater.parameters, decay) if decay is not None else None
        if checkpoint is not None:
            self.now = self.saver.restore(checkpoint, self.updater, self.ema)
        self.updater.begin()
        return checkpoint is not None

    def all_steps(self, metrics: Metrics | None, criteria: StopCriteria) -> str:
        """Update, record, validate and save until there is a reason to stop, which is returned."""
        now, first, skipped = self.now, self.now.step, self.now.skipped
        self.origin = (time.monotonic() if self.began is None else self.began) - now.seconds
        self.count_apart(now.seconds)  # the preparation
        self.timetable.first_step = first
        # A run that is resumed may have had its time, or its patience, already.
        over = self.group.same(self.timetable.is_over(now))
        self.take_over(None if over else self.timetable.begin(now), criteria)
        why = "minutes" if over else criteria.reason(now)
        self.progress.tick(now.step, now.seconds)
        with self.shares() as shares:
            while why is None:
                self.update(shares)
                now.seconds = self.seconds
                if now.step % self.settings.log_every:
                    self.progress.tick(now.step, now.seconds)
                else:
                    now.sums["waited"], shares.waited = shares.waited, 0.0
                    self.record(metrics)
                last = now.step >= self.settings.steps
                validated = last or now.step % self.settings.validate_every == 0
                if validated:
                    self.validate_and_save(metrics)
                if not last:
                    self.fit(validated, criteria)
                why = criteria.reason(now)
        # Also what a run that was killed, or stopped by a signal, at this very step did not come to.
        due = why != "signal" and now.validated != now.step
        if due:
            self.validate_and_save(metrics, why)
        elif self.saver.step != now.step:
            self.saver.save(now, self.updater, self.ema, best=False)
        if why != "signal":
            self.updater.read_sums(now)
            self.check_finite(now.skipped - skipped, now.step - first)
            if not self.loss_is_finite and now.best is None:
                raise TrainingError(
                    f"step {now.step:,}: the validation loss is not finite, and never was; lower training.rate, or "
                    f"check the data; {self.saver.last_checkpoint()}"
                )
        if why != "signal" and self.settings.average > 1:
            self.average(metrics)
        now.seconds = self.seconds
        return why

    # ---- the time

    @property
    def seconds(self) -> float:
        """Return the seconds that the run has taken, in all its processes one after the other."""
        return time.monotonic() - self.origin

    def count_apart(self, since: float) -> None:
        """Count the seconds since then as the run's, and not as those of training, whose pace is shown."""
        now = self.now
        now.seconds = self.seconds
        now.sums["since"] = now.sums.get("since", 0.0) + now.seconds - since

    def fit(self, validated: bool, criteria: StopCriteria) -> None:
        """Fit the steps to a time limit, where that is due; the first process decides for all."""
        now, group = self.now, self.group
        if self.timetable.limit is None or (group.world > 1 and not validated and now.step % self.settings.log_every):
            return
        known = "steps" in now.fitted
        due = self.timetable.is_due(now, validated)
        settings = group.same(self.timetable.fit(now) if group.first and due else None)
        self.take_over(settings, criteria)
        if settings is not None and not known:
            self.progress.say(
                f"time limit of {self.settings.minutes:g} minutes: about {settings.steps:,} steps fit, with "
                f"{settings.warmup:,} of warm-up and a validation every {settings.validate_every:,}"
            )

    def take_over(self, settings: TrainingSettings | None, criteria: StopCriteria) -> None:
        """Continue with fitted settings."""
        settings = self.group.same(settings)
        if settings is None:
            return
        self.settings = self.updater.settings = self.saver.settings = criteria.settings = settings
        self.now.fitted = self.group.same(self.timetable.record(settings))
        ends = self.timetable.ends_with_the_time(self.now.fitted)
        self.progress.limit(self.timetable.limit if ends else None)  # otherwise the steps that were set end before

    # ---- one update

    def shares(self) -> Prefetch:
        """Prefetch the shares that each update from here on trains on."""
        group, pin = self.group, self.group.device.type == "cuda"
        return Prefetch(self.task, self.now.position, self.settings.accumulate, group.rank, group.world, pin)

    def update(self, shares: Prefetch) -> None:
        """Take one step of the optimiser on some batches."""
        now, step = self.now, self.now.step + 1
        torch.manual_seed(mix_seeds(self.settings.seed, step, self.group.rank))
        share = next(shares)
        self.updater(share, now)
        if self.ema is not None:
            self.ema.update(self.updater.parameters, step)
        now.step, now.position = step, share.end

    # ---- what is recorded, measured and saved

    def record(self, metrics: Metrics | None) -> None:
        """Read the sums from the device, record them and show them."""
        now = self.now
        self.updater.read_sums(now)
        # Pieces that are cut anew are counted as they came out, where the objective says how many those were.
        sums, count = now.sums, max(1.0, now.sums.get("tokens", now.sums["count"]))
        interval = now.seconds - sums.get("since", 0.0)
        record = {
            "step": now.step,
            **({} if self.timetable.is_open and "steps" not in now.fitted else {"steps": self.settings.steps}),
            "epoch": now.position.epoch,
            **mean_losses(sums, count),
            "rate": rate_at(now.step, self.settings),
            "tokens_per_second": count / interval if interval > 0 else 0.0,
            "unit": self.task.unit,
            "waited": round(sums.get("waited", 0.0) / interval, 4) if interval > 0 else 0.0,
            "seconds": round(now.seconds, 3),
            "skipped": now.skipped,
        }
        bad_since = sums.get("bad", 0)
        run = sums.get("lost", 0) + bad_since if bad_since == self.settings.log_every else 0
        now.sums = {"since": now.seconds, "lost": run}
        if metrics is not None:
            metrics.write("step", record)
        self.progress.step(record)
        if bad_since:
            self.progress.say(f"step {now.step:,}: {bad_since:,.0f} steps were not finite and were skipped")
        self.check_finite(run, HOPELESS)

    def check_finite(self, run: float, most: int) -> None:
        """Stop where none of the last `run` steps had a finite gradient, and there were as many as `most`."""
        if run >= most > 0:
            raise TrainingError(
                f"step {self.now.step:,}: no finite gradient in the last {run:,.0f} steps; lower training.rate, or "
                f"check the data; {self.saver.last_checkpoint()}"
            )

    def validate_and_save(self, metrics: Metrics | None, why: str | None = None) -> None:
        """Validate and save a checkpoint, and note how long both took; `why` the run ends, if that is known."""
        now, before = self.now, self.now.seconds
        figures, samples = self.measure()
        self.loss_is_finite = math.isfinite(figures.get("loss", 0.0))
        better, now.validated = now.compare(figures, self.task.metric), now.step
        self.record_validation(metrics, figures, samples, better)
        self.count_apart(before)  # of the pace; but of the run
        timetable, validated = self.timetable, now.seconds
        timetable.note_validation(validated - before)
        if timetable.limit is not None:
            end = now.step >= self.settings.steps and timetable.ends_with_the_time(now.fitted)
            is_over = why == "minutes" or end or timetable.is_late(now)
            timetable.open_step = None if is_over else now.step
            over = {"over": timetable.limit} if is_over else {}
            fitted = timetable.record(self.settings) if now.fitted else {}
            now.fitted = {**fitted, **over}  # also for who resumes it
        self.saver.save(now, self.updater, self.ema, better)
        self.count_apart(validated)
        timetable.note_validation(now.seconds - validated, more=True)

    def record_validation(
        self, metrics: Metrics | None, figures: Mapping[str, float], samples: Sequence[Any], better: bool
    ) -> None:
        """Record the figures and samples of a validation, and show them."""
        record = {"step": self.now.step, **figures, "best": better, "seconds": round(self.seconds, 3)}
        if metrics is not None:
            metrics.write("valid", {**record, "samples": [sample.record() for sample in samples]})
        self.progress.valid(record)
        self.progress.samples(samples)

    def measure(self) -> tuple[dict[str, float], list[Any]]:
        """Return the task's figures and samples, the same on every process."""
        self.progress.begin_validation()
        averaged = (
            contextlib.nullcontext() if self.ema is None else swap_values(self.updater.parameters, self.ema.values)
        )
        self.objective.eval()
        try:
            with torch.no_grad(), averaged, merge_adapters(self.objective), self.group.whole(self.objective):
                # Sharded weights need every process at every step; otherwise one measures for all.
                here = self.group.first or self.group.shard
                results = (self.task.validate(), self.task.samples()) if here else None
        finally:
            self.objective.train()
        figures, samples = self.group.same(results)
        return figures, samples

    def average(self, metrics: Metrics | None) -> None:
        """Measure the mean of the last checkpoints' weights, and save it as `average`, and as the best if it is.

        It is recorded last, so that a run which was killed before does what is left when it is resumed, and one that
        was not does nothing twice.
        """
        folders = self.saver.checkpoints.steps()[-self.settings.average :]
        done = {"step": self.now.step, "checkpoints": " ".join(folder.name for folder in folders)}
        if len(folders) < 2 or self.group.same(self.group.first and self.is_recorded(done)):
            return
        mean, self.ema = self.saver.load_mean(folders, self.objective), None
        figures, samples = self.measure()
        best = self.now.compare(figures, self.task.metric)
        if self.group.same(self.saver.mean_is_best(folders)):  # a kill came behind its saving
            best = True
        else:
            self.saver.save_mean(mean, folders, self.now, best)
        self.record_validation(metrics, figures, samples, best)
        if metrics is not None:
            metrics.write("average", {**done, "best": best})
        verdict = "better" if best else "not better"
        self.progress.say(f"average of the last {len(folders)} checkpoints: {verdict}")

    def is_recorded(self, average: Mapping[str, Any]) -> bool:
        """Return whether this average was measured, saved and recorded already."""
        records = [each for each in read_records(self.folder / "metrics.jsonl") if each.get("kind") == "average"]
        return any(average.items() <= each.items() for each in records)


def mix_seeds(*numbers: int) -> int:
    """Mix several numbers into one seed (SplitMix64), so that neighbours have nothing in common."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state
