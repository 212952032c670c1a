"""When a run stops: patience, minutes, and a person who asks."""

import math
import signal

import pytest
from tiny import Line, StopAt, records, training
from training.cases import Scripted

from regard.training.checkpoint import Checkpoints, read_checkpoint
from regard.training.loop import train


@pytest.mark.parametrize(
    ("values", "patience", "stops", "best"),
    [
        ([1, 2, 3, 4, 5, 6], 2, 24, 24),
        ([3, 2, 1, 4, 5, 6], 2, 12, 4),
        ([3, 4, 4, 4, 5, 6], 2, 16, 8),  # as good as is not better
        ([3, math.nan, math.nan, 4, 5, 6], 2, 12, 4),
        ([math.nan, math.nan, 1, 1, 1, 1], 3, 24, 12),
        ([3, 2, 1, 1, 1, 1], 0, 24, 4),
        ([None] * 6, 2, 24, 0),  # nothing to measure is no reason to stop
    ],
)
def test_patience(tmp_path, values, patience, stops, best):
    settings = training(steps=24, patience=patience)
    result = train(Scripted(values), settings, tmp_path)
    assert (result.step, result.best_step) == (stops, best)
    assert result.why == ("finished" if stops == 24 else "patience")
    link = Checkpoints(tmp_path).linked("best")
    assert link == (f"step-{best:06d}" if best else None)
    assert Checkpoints(tmp_path).linked("last") == f"step-{stops:06d}"


def test_patience_goes_over_a_resume(tmp_path):
    values = [3, 4, 1, 1, 1, 9]
    whole = train(Scripted(values), training(steps=24, patience=3), tmp_path / "whole")
    run = tmp_path / "cut"
    assert train(Scripted(values), training(steps=24, patience=3), run, progress=StopAt(14)).step == 14
    rest = train(Scripted(values[3:]), training(steps=24, patience=3), run, resume=True)
    assert (rest.step, rest.why, rest.best, rest.best_step) == (whole.step, whole.why, whole.best, whole.best_step)
    assert rest.step == 20


def test_minutes_end_a_run_with_a_validation(tmp_path):
    result = train(Line(), training(steps=10**6, minutes=0.2 / 60, validate_every=10**6), tmp_path)
    assert result.why == "minutes"
    assert result.seconds == pytest.approx(0.2, abs=0.3)
    assert records(tmp_path)[-1]["kind"] == "valid"
    assert Checkpoints(tmp_path).linked("best") == Checkpoints(tmp_path).linked("last") == f"step-{result.step:06d}"
    # Going on with the same limit stops at once: the time counts over resumes.
    again = train(Line(), training(steps=10**6, minutes=0.2 / 60, validate_every=10**6), tmp_path, resume=True)
    assert (again.step, again.why) == (result.step, "minutes")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_update_finish(tmp_path, number):
    before = signal.getsignal(number)
    result = train(Line(), training(), tmp_path, progress=StopAt(2, number))
    assert (result.step, result.why) == (2, "signal")
    assert read_checkpoint(Checkpoints(tmp_path).last()).step == 2
    assert Checkpoints(tmp_path).linked("best") is None  # it was not measured
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_ignored_stays_ignored(tmp_path, number):
    """As of a run that a script started with `&`."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        result = train(Line(), training(), tmp_path, progress=StopAt(2, number))
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)
    assert (result.step, result.why) == (8, "finished")


def test_a_second_control_c_stops_at_once(tmp_path):
    class Twice(StopAt):
        def step(self, record):
            super().step(record)
            super().step(record)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(Line(), training(), tmp_path, progress=Twice(6, signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is before
    assert read_checkpoint(Checkpoints(tmp_path).last()).step == 4
