"""The loop: take batches, update, record, validate, save. It knows only a Task, not what the model learns.

One update takes `accumulate × processes` consecutive batches of the task's stream. Their losses are divided by the
total count of all these batches, so that the update is the same however many processes share them. Each update reseeds
the random generators by (seed, step, process). A checkpoint holds the step, the position in the stream, the weights and
the optimiser's state, so that a resumed run equals an uninterrupted one bit by bit.

With a time limit, the learning rate's schedule ends when the time does, and the time includes validations. The loop
fits the number of steps to the measured pace after the first few steps, after every validation, and whenever a
twentieth of the limit has passed. `training.fit` names the settings that the user left open: the steps, the warm-up,
the steps between two validations. A configured number of steps is only lowered. A checkpoint's counters hold the last
fit, so that a resumed run starts from there. A run stops at its last step, when patience or time runs out, or on a
signal.

`regard.training.update` computes an update from batches. `regard.training.trainer_state` saves a run's state in
checkpoints and restores it.
"""

import contextlib
import math
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.errors import TrainingError
from regard.training.adapters import describe_adapters, merge_adapters
from regard.training.checkpoint import step_name
from regard.training.distributed import Group, allow_tf32, describe_device
from regard.training.folder import claim
from regard.training.metrics import Metrics, mean_losses, metric_name, read_records
from regard.training.progress import Progress
from regard.training.settings import FITTED, TrainingSettings
from regard.training.task import Prefetch, Task
from regard.training.trainer_state import Counters, Saver
from regard.training.update import Updater, rate_at
from regard.training.weights import swap_values

__all__ = ["Result", "Trainer", "train"]

MAX_BAD_STEPS = 100  # consecutive steps without a finite gradient
FIRST = 2  # initial steps of a process that are not timed: they fill caches, and may compile
TIMED = 3  # minimum number of timed steps before a fit
EARLY = 0.02  # share of the limit that is timed before the first fit, unless MANY steps come earlier
MANY = 100
AGAIN = 0.05  # share of the limit after which the steps are fitted again
UNKNOWN = (0.1, 3.0)  # assumed length of a validation before the first: this share of the limit, at most these seconds
VALIDATING = 0.2  # share of the limit that validations may take if their distance is fitted
NEWEST = 0.5  # weight of the pace since the last fit
# SIGHUP means that the terminal was closed. Windows has no SIGHUP.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    step: int
    best: float | None
    best_step: int
    stop_reason: str  # finished, patience, minutes or signal
    seconds: float
    signal: int | None = None  # the number of the signal that stopped the run
    first: int = 0  # the step from which this process trained

    @property
    def why(self) -> str:
        """Return `stop_reason`; deprecated."""
        warnings.warn("Result.why is now called stop_reason", DeprecationWarning, stacklevel=2)
        return self.stop_reason


def train(
    task: Task,
    settings: TrainingSettings,
    run: Path,
    *,
    progress: Progress | None = None,
    resume: bool = False,
    group: Group | None = None,
    began: float | None = None,
) -> Result:
    """Train a task into a run folder; with `resume`, continue from its last checkpoint.

    `began` is the `time.monotonic()` at which the preparation of the data began; the run's seconds count from then.
    """
    group = group or Group(settings.device, settings.shard)
    with claim(run, resume, group):
        return Trainer(task, settings, run, progress or Progress(), group, began).run(resume)


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
        self.began = began  # start of this process's seconds
        self.origin = time.monotonic()  # start of the run's seconds, as if the run had never stopped
        self.timetable = Timetable(settings)
        self.criteria = StopCriteria(group, self.progress, self.timetable)
        self.metrics: Metrics | None = None  # only in the first process, from its first step on
        self.loss_is_finite = True  # in the last validation

    # ---- from the first step to the last

    def run(self, resume: bool, ready: Callable[[], None] | None = None) -> Result:
        """Run the whole training in a folder that is already claimed.

        The first process calls `ready` after all checks have passed, before anything is written.
        """
        resumed = self.prepare(resume)
        if ready is not None and self.group.first:
            ready()
        self.group.wait()
        if resumed and self.group.first:
            self.saver.checkpoints.repair(step_name(self.now.step))
        if self.group.first:  # Metrics cuts off the records of steps that will be repeated
            path, validated = self.folder / "metrics.jsonl", self.now.validated == self.now.step
            self.metrics = Metrics(path, self.now.step, self.settings.track, validated=validated)
        device, bf16 = self.group.device, self.updater.bf16
        facts = [
            *self.task.facts(),
            *describe_adapters(self.objective),
            ("best checkpoint by", metric_name(self.task.metric)),
            ("device", describe_device(device, self.group.world, bf16)),
            ("path", self.updater.path()),
        ]
        title = f"{self.folder}" + (f", from step {self.now.step:,}" if resumed else "")
        self.progress.begin(title, facts, None if self.timetable.is_open else self.settings.steps)
        self.progress.limit(self.timetable.limit)
        self.objective.train()
        with self.metrics or contextlib.nullcontext(), self.criteria, allow_tf32(bf16 and device.type == "cuda"):
            try:
                reason = self.all_steps()
            except torch.OutOfMemoryError as error:  # outside a batch; a batch would be redone in parts
                last = self.saver.checkpoints.last()
                raise TrainingError(
                    f"step {self.now.step:,}: out of memory: make training.batch_tokens or the model smaller; the last "
                    f"checkpoint is {last}"
                ) from error
        now, number = self.now, None
        if reason == "signal":  # another process may have received the signal
            number = int(self.criteria.signal or signal.SIGTERM)
        return Result(now.step, now.best, now.best_step, reason, now.seconds, number, self.timetable.first_step)

    def prepare(self, resume: bool) -> bool:
        """Set up weights, optimiser and counters, new or from a checkpoint; return whether a run was resumed."""
        torch.manual_seed(self.settings.seed)
        checkpoint = self.saver.find(resume)
        self.objective: nn.Module = self.task.objective.to(self.group.device)
        if checkpoint is not None:
            self.saver.load(checkpoint, self.objective)
        self.group.wrap(self.objective)
        self.updater = Updater(self.task, self.objective, self.settings, self.group, self.progress)
        self.ema: list[Tensor] | None = None  # the moving average of the parameters
        if self.settings.ema is not None:
            self.ema = [parameter.detach().clone() for parameter in self.updater.parameters]
        if checkpoint is not None:
            self.now = self.saver.restore(checkpoint, self.updater, self.ema)
        self.updater.begin()
        return checkpoint is not None

    def all_steps(self) -> str:
        """Update, record, validate and save until there is a reason to stop; return the reason."""
        now, first, skipped = self.now, self.now.step, self.now.skipped
        self.origin = (time.monotonic() if self.began is None else self.began) - now.seconds
        self.count_apart(now.seconds)  # the preparation
        self.timetable.first_step = first
        # A resumed run may have used up its time or its patience already.
        over = self.group.same(self.timetable.is_over(now))
        self.take_over(None if over else self.timetable.begin(now))
        reason = "minutes" if over else self.criteria.reason(now, self.settings)
        self.progress.tick(now.step, now.seconds)
        with self.shares() as shares:
            while reason is None:
                self.update(shares)
                now.seconds = self.seconds
                if now.step % self.settings.log_every == 0:
                    now.sums["waited"], shares.waited = shares.waited, 0.0
                    self.record()
                elif self.progress.live:
                    self.progress.tick(now.step, now.seconds)
                last = now.step >= self.settings.steps
                validated = last or now.step % self.settings.validate_every == 0
                if validated:
                    self.validate_and_save()
                if not last:
                    self.fit(validated)
                reason = self.criteria.reason(now, self.settings)
        # This also completes an earlier process that was killed, or stopped by a signal, at this very step.
        if reason != "signal" and now.validated != now.step:
            self.validate_and_save(reason)
        elif self.saver.step != now.step:
            self.saver.save(now, self.updater, self.ema, best=False)
        if reason != "signal":
            self.updater.read_sums(now)
            self.check_finite(now.skipped - skipped, now.step - first)
            if not self.loss_is_finite and now.best is None:
                raise TrainingError(
                    f"step {now.step:,}: the validation loss is not finite, and never was; lower training.rate, or "
                    f"check the data; {self.saver.last_checkpoint()}"
                )
            if self.settings.average > 1:
                self.average()
        now.seconds = self.seconds
        return reason

    # ---- the time

    @property
    def seconds(self) -> float:
        """Return the seconds that the run has taken so far, including those before a resume."""
        return time.monotonic() - self.origin

    def count_apart(self, since: float) -> None:
        """Update the run's seconds, and exclude those after `since` from the displayed pace."""
        now = self.now
        now.seconds = self.seconds
        now.sums["since"] = now.sums.get("since", 0.0) + now.seconds - since

    def fit(self, validated: bool) -> None:
        """Fit the steps to the time limit if a fit is due; the first process decides for all."""
        now, group = self.now, self.group
        if self.timetable.limit is None or (group.world > 1 and not validated and now.step % self.settings.log_every):
            return
        known = "steps" in now.fitted
        due = self.timetable.is_due(now, validated)
        settings = group.same(self.timetable.fit(now) if group.first and due else None)
        self.take_over(settings)
        if settings is not None and not known:
            self.progress.say(
                f"time limit of {self.settings.minutes:g} minutes: about {settings.steps:,} steps fit, with "
                f"{settings.warmup:,} of warm-up and a validation every {settings.validate_every:,}"
            )

    def take_over(self, settings: TrainingSettings | None) -> None:
        """Continue with the first process's fitted settings, if there are any."""
        settings = self.group.same(settings)
        if settings is None:
            return
        self.settings = self.updater.settings = self.saver.settings = settings
        self.now.fitted = self.group.same(self.timetable.record(settings))
        ends = self.timetable.ends_with_the_time(self.now.fitted)
        self.progress.limit(self.timetable.limit if ends else None)  # None: the configured steps end first

    # ---- one update

    def shares(self) -> Prefetch:
        """Return a Prefetch that yields this process's share of each update from here on."""
        return Prefetch(self.task, self.now.position, self.settings.accumulate, self.group)

    def update(self, shares: Prefetch) -> None:
        """Take one step of the optimiser on the next share of batches."""
        now, step = self.now, self.now.step + 1
        torch.manual_seed(mix_seeds(self.settings.seed, step, self.group.rank))
        share = next(shares)
        self.updater(share, now)
        if self.ema is not None and self.settings.ema is not None:
            # A smaller decay at the start, so that the average soon forgets the initial weights.
            decay = min(self.settings.ema, (1 + step) / (10 + step))
            torch._foreach_lerp_(self.ema, [parameter.detach() for parameter in self.updater.parameters], 1 - decay)
        now.step, now.position = step, share.end

    # ---- recording, measuring and saving

    def record(self) -> None:
        """Read the sums from the device, record them and show them."""
        now = self.now
        self.updater.read_sums(now)
        # With BPE dropout the number of tokens differs from the plan's: use the objective's own count.
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
        self.write("step", record)
        self.progress.step(record)
        if bad_since:
            self.progress.say(f"step {now.step:,}: {bad_since:,.0f} steps were not finite and were skipped")
        self.check_finite(run, MAX_BAD_STEPS)

    def check_finite(self, run: float, most: int) -> None:
        """Raise an error if `run`, the number of steps in a row without a finite gradient, has reached `most`."""
        if run >= most > 0:
            raise TrainingError(
                f"step {self.now.step:,}: no finite gradient in the last {run:,.0f} steps; lower training.rate, or "
                f"check the data; {self.saver.last_checkpoint()}"
            )

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        """Write a record to metrics.jsonl, in the first process."""
        if self.metrics is not None:
            self.metrics.write(kind, record)

    def validate_and_save(self, stop_reason: str | None = None) -> None:
        """Validate and save a checkpoint, and note how long both took; pass `stop_reason` if the run ends here."""
        now, before = self.now, self.now.seconds
        figures, samples = self.measure()
        self.loss_is_finite = math.isfinite(figures.get("loss", 0.0))
        better, now.validated = now.compare(figures, self.task.metric), now.step
        self.record_validation(figures, samples, better)
        self.count_apart(before)
        timetable, validated = self.timetable, now.seconds
        timetable.note_validation(validated - before)
        if timetable.limit is not None:
            end = now.step >= self.settings.steps and timetable.ends_with_the_time(now.fitted)
            is_over = stop_reason == "minutes" or end or timetable.is_late(now)
            timetable.open_step = None if is_over else now.step
            over = {"over": timetable.limit} if is_over else {}
            fitted = timetable.record(self.settings) if now.fitted else {}
            now.fitted = {**fitted, **over}  # the checkpoint holds it for a resumed run
        self.saver.save(now, self.updater, self.ema, better)
        self.count_apart(validated)
        timetable.note_validation(now.seconds - validated, more=True)

    def record_validation(self, figures: Mapping[str, float], samples: Sequence[Any], better: bool) -> None:
        """Record the figures and samples of a validation, and show them."""
        record = {"step": self.now.step, **figures, "best": better, "seconds": round(self.seconds, 3)}
        self.write("valid", {**record, "samples": [sample.record() for sample in samples]})
        self.progress.valid(record)
        self.progress.samples(samples)

    def measure(self) -> tuple[dict[str, float], list[Any]]:
        """Validate, with averaged weights if there are any; return the same figures and samples on every process."""
        self.progress.begin_validation()
        ema, parameters = self.ema, self.updater.parameters
        averaged = contextlib.nullcontext() if ema is None else swap_values(parameters, ema)
        self.objective.eval()
        try:
            with torch.no_grad(), averaged, merge_adapters(self.objective), self.group.whole(self.objective):
                # With sharded weights every process must take part; otherwise the first measures for all.
                here = self.group.first or self.group.shard
                results = (self.task.validate(), self.task.samples()) if here else None
        finally:
            self.objective.train()
        figures, samples = self.group.same(results)
        return figures, samples

    def average(self) -> None:
        """Measure the mean of the last checkpoints' weights, save it as `average`, and mark it if it is the best.

        The record `average` comes last: a resumed run repeats this if the record is missing, and skips it otherwise.
        """
        folders = self.saver.checkpoints.steps()[-self.settings.average :]
        done = {"step": self.now.step, "checkpoints": " ".join(folder.name for folder in folders)}
        before = read_records(self.folder / "metrics.jsonl")
        is_done = any(each.get("kind") == "average" and done.items() <= each.items() for each in before)
        if len(folders) < 2 or self.group.same(is_done):
            return
        mean, self.ema = self.saver.load_mean(folders, self.objective), None
        figures, samples = self.measure()
        best = self.now.compare(figures, self.task.metric)
        if self.group.same(self.saver.mean_is_best(folders)):  # an earlier process was killed after saving it
            best = True
        else:
            self.saver.save_mean(mean, folders, self.now, best)
        self.record_validation(figures, samples, best)
        self.write("average", {**done, "best": best})
        verdict = "better" if best else "not better"
        self.progress.say(f"average of the last {len(folders)} checkpoints: {verdict}")


def mix_seeds(*numbers: int) -> int:
    """Mix several numbers into one seed (SplitMix64), so that neighbouring numbers give unrelated seeds."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state


# ---- the time


@dataclass(frozen=True)
class Mark:
    """The moment from which steps are timed."""

    step: int
    seconds: float
    validating: float  # seconds of validations until then


class Timetable:
    """The timetable of one process: fits steps to the time limit; without a limit it changes no settings."""

    def __init__(self, given: TrainingSettings):
        self.given = given
        self.limit = None if given.minutes is None else 60 * given.minutes
        self.is_open = "steps" in given.fit  # the user set no number of steps
        self.pace: float | None = None  # seconds per step
        self.validation: float | None = None  # seconds of the last validation and its checkpoint
        self.validating = 0.0  # seconds of all validations and their checkpoints
        self.warmup: int | None = None  # the fitted warm-up
        self.first_step = 0  # of this process
        self.open_step: int | None = None  # the last step whose checkpoint says that time is left
        self.mark: Mark | None = None

    @property
    def reserve(self) -> float:
        """Return the seconds to reserve for the end of the run: a validation, and another one with an average."""
        if self.limit is None:
            return 0.0
        each = min(UNKNOWN[0] * self.limit, UNKNOWN[1]) if self.validation is None else self.validation
        return each * (1 + (self.given.average > 1))

    def begin(self, now: Counters) -> TrainingSettings | None:
        """Take over the fit of an earlier process, if this run is resumed; return the settings fitted from it."""
        if self.limit is None or not {"pace", *FITTED} <= now.fitted.keys():
            return None
        self.pace, self.validation = now.fitted["pace"], now.fitted.get("validation")
        self.warmup = int(now.fitted["warmup"])
        return self.fit(now)

    def is_over(self, now: Counters) -> bool:
        """Return whether an earlier process of the run has used up this limit."""
        return self.limit is not None and now.fitted.get("over", 0.0) >= self.limit

    def is_late(self, now: Counters) -> bool:
        """Return whether only the reserve is left; never before the first step, however long the data took.

        After a step whose checkpoint says that time is left, return False, however long saving took: the last
        checkpoint of a finished run must say that its time is over.
        """
        if self.limit is None or now.step in (0, self.open_step):
            return False
        return now.seconds + self.reserve > self.limit

    def note_validation(self, seconds: float, more: bool = False) -> None:
        """Note how long a validation took; with `more`, add the time of its checkpoint."""
        self.validation = seconds + (self.validation or 0.0) * more
        self.validating += seconds

    def is_due(self, now: Counters, validated: bool) -> bool:
        """Return whether a fit is due after this step."""
        if self.limit is None or now.step < self.first_step + FIRST:
            return False
        if self.mark is None:
            self.mark = Mark(now.step, now.seconds, self.validating)
            return False
        steps, seconds = now.step - self.mark.step, now.seconds - self.mark.seconds
        if self.pace is None:
            return steps >= TIMED and (seconds >= EARLY * self.limit or steps >= MANY)
        return steps >= TIMED and (validated or seconds >= AGAIN * self.limit)

    def fit(self, now: Counters) -> TrainingSettings:
        """Return the settings with as many steps as fit into the remaining time."""
        assert self.limit is not None
        self.measure(now)
        given, pace = self.given, self.pace or 0.0
        left = max(0.0, self.limit - now.seconds - self.reserve)
        every, cost = given.validate_every, self.reserve / (1 + (given.average > 1))
        if self.is_open and "validate_every" in given.fit:
            most = now.step + steps_that_fit(left, pace, 0.0, 1)
            usual = max(1, min(50, most), min(1_000, most // 20))  # aims at about twenty validations
            every = max(usual, math.ceil(most * cost / (VALIDATING * self.limit)))
        more = max(steps_that_fit(left, pace, cost, every), int(now.step == self.open_step))
        steps = max(1, now.step + more)
        steps = steps if self.is_open else min(steps, given.steps)
        if self.warmup is None or now.step < self.warmup:  # a finished warm-up stays as it was
            self.warmup = self.fit_warmup(steps)
        self.mark = Mark(now.step, now.seconds, self.validating)
        return replace(given, steps=steps, warmup=self.warmup, validate_every=every)

    def measure(self, now: Counters) -> None:
        """Measure the pace since the last fit, and average it with the pace before."""
        if self.mark is None or now.step <= self.mark.step:
            return
        seconds = now.seconds - self.mark.seconds - (self.validating - self.mark.validating)
        newest = max(seconds, 1e-6) / (now.step - self.mark.step)
        self.pace = newest if self.pace is None else NEWEST * newest + (1 - NEWEST) * self.pace

    def fit_warmup(self, steps: int) -> int:
        """Return the warm-up for `steps` steps: a tenth of them, or the configured one, scaled down with the steps."""
        given = self.given
        if self.is_open:
            return max(1, min(4_000, steps // 10)) if "warmup" in given.fit else given.warmup
        return given.warmup if steps >= given.steps else min(given.warmup, max(1, given.warmup * steps // given.steps))

    def record(self, settings: TrainingSettings) -> dict[str, float]:
        """Return the fit as a checkpoint's counters hold it."""
        fitted: dict[str, float] = {name: getattr(settings, name) for name in FITTED}
        measured = {"pace": self.pace, "validation": self.validation}
        return fitted | {name: value for name, value in measured.items() if value is not None}

    def ends_with_the_time(self, fitted: Mapping[str, float]) -> bool:
        """Return whether the time limit, and not the configured number of steps, determines the last step."""
        return "steps" in fitted and (self.is_open or fitted["steps"] < self.given.steps)


def steps_that_fit(seconds: float, pace: float, validation: float, every: int) -> int:
    """Return how many steps fit into `seconds`, with a validation after every `every` steps."""
    each = pace + validation / every
    return max(0, int(seconds / each)) if each > 0 else 0


# ---- when training stops


class StopCriteria:
    """Criteria for stopping; inside the block, training saves a checkpoint after Ctrl-C, SIGTERM or SIGHUP.

    A second Ctrl-C stops at once. A signal that the process ignores stays ignored: SIGHUP under `nohup`, or SIGINT for
    a job that a script starts with `&`.
    """

    def __init__(self, group: Group, progress: Progress, timetable: Timetable):
        self.group, self.progress, self.timetable = group, progress, timetable
        self.signal: int | None = None  # the number of a received signal
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        ignored = {number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN}
        try:
            self.before = {number: signal.signal(number, self.note) for number in SIGNALS if number not in ignored}
        except ValueError:  # only the main thread can set signal handlers
            self.before = {}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Remember that a signal asked to stop."""
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
        self.progress.say(f"{signal.Signals(number).name}: saving after this step")

    def reason(self, now: Counters, settings: TrainingSettings) -> str | None:
        """Return why to stop, the same on every process: finished, patience, signal or minutes; None to continue."""
        group = self.group
        if now.step >= settings.steps:
            return "minutes" if self.timetable.ends_with_the_time(now.fitted) else "finished"
        if settings.patience and now.waited >= settings.patience:
            return "patience"
        if group.device.type == "cuda" and group.world > 1 and now.step % settings.log_every:
            return None  # the all-reduce would wait for the device
        anywhere = group.any if group.world > 1 else bool
        if anywhere(self.signal is not None):
            return "signal"
        return "minutes" if anywhere(self.timetable.is_late(now)) else None
