"""The schedule of a run: its learning rate, how many steps fit into a time limit, and when it stops.

With a limit the schedule of the learning rate ends with the time, and validations lie within it. The number of steps is
fitted by the measured pace as soon as a few were taken, after every validation, and whenever a twentieth of the limit
has passed. What is fitted beside the steps (the warm-up, the steps between two validations) is named in `training.fit`.
What was fitted last is saved with the counters of a run, so that a resumed one starts from there.

A run stops at its last step, or where no patience is left, the time is up, or somebody asks.
"""

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Self

from regard.training.distributed import Group
from regard.training.progress import Progress
from regard.training.settings import FITTED, TrainingSettings
from regard.training.trainer_state import Counters

FIRST = 2  # steps of a process that are not timed: they fill caches, and may compile
TIMED = 3  # steps at least before the first fit
EARLY = 0.02  # of the limit that is timed before the first fit, or MANY steps
MANY = 100
AGAIN = 0.05  # of the limit, after which the steps are fitted anew
UNKNOWN = (0.1, 3.0)  # of the limit, and seconds, at most: what a validation is taken to take before there was one
VALIDATING = 0.2  # of the limit that validations may take where they are fitted
NEWEST = 0.5  # weight of the pace since the last fit
# SIGHUP: the terminal was closed. Windows has none.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def rate_at(step: int, settings: TrainingSettings) -> float:
    r"""Return the learning rate of a step.

    `noam`: $r \cdot \min(t/w, \sqrt{w/t})$, Vaswani et al. 2017 (arXiv:1706.03762), section 5.3, with its peak r given
    in place of the width's root. `cosine`: from r down to nothing at the last step (arXiv:1608.03983). `constant`: r.
    """
    warmup, peak = settings.warmup, settings.rate
    if step <= warmup:
        return peak * step / warmup
    if settings.schedule == "noam":
        return peak * math.sqrt(warmup / step)
    if settings.schedule == "cosine":
        progress = (step - warmup) / max(1, settings.steps - warmup)
        return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return peak


# ---- the time


@dataclass(frozen=True)
class Mark:
    """A moment from which steps are timed."""

    step: int
    seconds: float
    validating: float  # seconds of validations up to then


class Timetable:
    """The timetable of one process; without a limit it leaves the settings as they are."""

    def __init__(self, given: TrainingSettings):
        self.given = given
        self.limit = None if given.minutes is None else 60 * given.minutes
        self.is_open = "steps" in given.fit  # no number of steps was set
        self.pace: float | None = None  # seconds per step
        self.validation: float | None = None  # seconds of a validation, and of the checkpoint behind it
        self.validating = 0.0  # seconds of all of them
        self.warmup: int | None = None  # that was fitted
        self.first_step = 0  # of this process
        self.open_step: int | None = None  # whose checkpoint says that there is time for more
        self.mark: Mark | None = None

    @property
    def reserve(self) -> float:
        """Return the seconds that the end of the run takes: a validation, and one of the average."""
        if self.limit is None:
            return 0.0
        each = min(UNKNOWN[0] * self.limit, UNKNOWN[1]) if self.validation is None else self.validation
        return each * (1 + (self.given.average > 1))

    def begin(self, now: Counters) -> TrainingSettings | None:
        """Begin, where a run starts or is resumed; return the settings that an earlier process had fitted."""
        if self.limit is None or not {"pace", *FITTED} <= now.fitted.keys():
            return None
        self.pace, self.validation = now.fitted["pace"], now.fitted.get("validation")
        self.warmup = int(now.fitted["warmup"])
        return self.fit(now)

    def is_over(self, now: Counters) -> bool:
        """Return whether an earlier process had come to the end of this limit."""
        return self.limit is not None and now.fitted.get("over", 0.0) >= self.limit

    def is_late(self, now: Counters) -> bool:
        """Return whether there is only time for the end; at least one step is taken, however long the data took.

        After a step whose checkpoint says that there is time there is, however long saving it took: who resumes a run
        that ended has to read so in its last checkpoint.
        """
        if self.limit is None or now.step in (0, self.open_step):
            return False
        return now.seconds + self.reserve > self.limit

    def note_validation(self, seconds: float, more: bool = False) -> None:
        """Note how long a validation took, or the checkpoint behind it, which is one thing `more`."""
        self.validation = seconds + (self.validation or 0.0) * more
        self.validating += seconds

    def is_due(self, now: Counters, validated: bool) -> bool:
        """Return whether the steps are to be fitted now, after a step."""
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
        """Return the settings with as many steps as fit into the time that is left."""
        assert self.limit is not None
        self.measure(now)
        given, pace = self.given, self.pace or 0.0
        left = max(0.0, self.limit - now.seconds - self.reserve)
        every, cost = given.validate_every, self.reserve / (1 + (given.average > 1))
        if self.is_open and "validate_every" in given.fit:
            most = now.step + steps_that_fit(left, pace, 0.0, 1)
            usual = max(1, min(50, most), min(1_000, most // 20))  # for about twenty validations
            every = max(usual, math.ceil(most * cost / (VALIDATING * self.limit)))
        more = max(steps_that_fit(left, pace, cost, every), int(now.step == self.open_step))
        steps = max(1, now.step + more)
        steps = steps if self.is_open else min(steps, given.steps)
        if self.warmup is None or now.step < self.warmup:  # what is behind stays as it was
            self.warmup = self.fit_warmup(steps)
        self.mark = Mark(now.step, now.seconds, self.validating)
        return replace(given, steps=steps, warmup=self.warmup, validate_every=every)

    def measure(self, now: Counters) -> None:
        """Measure the pace since the last fit; half of it counts, and half of that before."""
        if self.mark is None or now.step <= self.mark.step:
            return
        seconds = now.seconds - self.mark.seconds - (self.validating - self.mark.validating)
        newest = max(seconds, 1e-6) / (now.step - self.mark.step)
        self.pace = newest if self.pace is None else NEWEST * newest + (1 - NEWEST) * self.pace

    def fit_warmup(self, steps: int) -> int:
        """Return the warm-up of so many steps: a tenth, or in proportion where a schedule that was set is shortened."""
        given = self.given
        if self.is_open:
            return max(1, min(4_000, steps // 10)) if "warmup" in given.fit else given.warmup
        return given.warmup if steps >= given.steps else min(given.warmup, max(1, given.warmup * steps // given.steps))

    def record(self, settings: TrainingSettings) -> dict[str, float]:
        """Return what a checkpoint holds of a fit."""
        fitted: dict[str, float] = {name: getattr(settings, name) for name in FITTED}
        measured = {"pace": self.pace, "validation": self.validation}
        return fitted | {name: value for name, value in measured.items() if value is not None}

    def ends_with_the_time(self, fitted: Mapping[str, float]) -> bool:
        """Return whether the last of the fitted steps is where the time ends, and not a number that was set."""
        return "steps" in fitted and (self.is_open or fitted["steps"] < self.given.steps)


def steps_that_fit(seconds: float, pace: float, validation: float, every: int) -> int:
    """Return how many steps fit into so many seconds, with a validation after every so many of them."""
    each = pace + validation / every
    return max(0, int(seconds / each)) if each > 0 else 0


# ---- when training stops


class StopCriteria:
    """Criteria for stopping; inside the block, Ctrl-C, SIGTERM and SIGHUP let the update finish, to be saved.

    A second Ctrl-C stops at once. A SIGHUP that is ignored, as with `nohup`, stays ignored, and so does a Ctrl-C,
    as with `&` in a script.
    """

    def __init__(self, group: Group, progress: Progress, timetable: Timetable):
        self.group, self.progress, self.timetable = group, progress, timetable
        self.signal_name: str | None = None
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        ignored = {number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN}
        try:
            self.before = {number: signal.signal(number, self.note) for number in SIGNALS if number not in ignored}
        except ValueError:  # not in the main thread: whoever started it has to stop it
            self.before = {}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    @property
    def signal_number(self) -> int:
        """Return the number of the signal that asked to stop; of SIGTERM where another process was asked."""
        return int(signal.Signals[self.signal_name] if self.signal_name else signal.SIGTERM)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Remember that a signal asked to stop."""
        if self.signal_name is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name
        self.progress.say(f"{self.signal_name}: saving after this step")

    def reason(self, now: Counters, settings: TrainingSettings) -> str | None:
        """Return why to stop, the same on every process: finished, patience, signal or minutes; None to continue."""
        group = self.group
        if now.step >= settings.steps:
            return "minutes" if self.timetable.ends_with_the_time(now.fitted) else "finished"
        if settings.patience and now.waited >= settings.patience:
            return "patience"
        if group.device.type == "cuda" and group.world > 1 and now.step % settings.log_every:
            return None  # asking the others costs a wait for the device
        anywhere = group.any if group.world > 1 else bool
        if anywhere(self.signal_name is not None):
            return "signal"
        return "minutes" if anywhere(self.timetable.is_late(now)) else None
