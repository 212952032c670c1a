"""Criteria for stopping: the last step, no patience left, the time is up, or somebody asked."""

import signal
from types import FrameType, TracebackType
from typing import Any, Self

from regard.training.distributed import Group
from regard.training.progress import Progress
from regard.training.settings import TrainingSettings
from regard.training.timetable import Timetable
from regard.training.trainer_state import Counters

# SIGHUP: the terminal was closed. Windows has none.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class StopCriteria:
    """Criteria for stopping; inside the block, Ctrl-C, SIGTERM and SIGHUP let the update finish, to be saved.

    A second Ctrl-C stops at once. A SIGHUP that is ignored, as with `nohup`, stays ignored, and so does a Ctrl-C,
    as with `&` in a script.
    """

    def __init__(self, group: Group, settings: TrainingSettings, progress: Progress, timetable: Timetable):
        self.group, self.settings, self.progress = group, settings, progress
        self.timetable = timetable
        self.signal_name: str | None = None
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        ignored = {number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN}
        try:
            self.before = {number: signal.signal(number, self.note) for number in SIGNALS if number not in ignored}
        except ValueError:  # not in the main thread: whoever started it has to stop it
            self.before = {}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
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

    def reason(self, now: Counters) -> str | None:
        """Return why to stop, the same on every process: finished, patience, signal or minutes; None to continue."""
        settings, group = self.settings, self.group
        if now.step >= settings.steps:
            return "minutes" if self.timetable.ends_with_the_time(now.fitted) else "finished"
        if settings.patience and now.waited >= settings.patience:
            return "patience"
        if group.device.type == "cuda" and group.world > 1 and now.step % settings.log_every:
            return None  # asking the others costs a wait for the device
        if group.any(self.signal_name is not None):
            return "signal"
        return "minutes" if group.any(self.timetable.is_late(now)) else None
