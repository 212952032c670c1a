"""A time limit: the schedule ends with the time, which covers everything; and other reasons why a run stops."""

import itertools
import math
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import Line, StopAt, records, table, training, write_pairs
from training.cases import Scripted

from regard import report
from regard.config import read
from regard.training import loop, metrics
from regard.training.checkpoint import Checkpoints, read_checkpoint, read_manifest
from regard.training.loop import Timetable, rate_at, train
from regard.training.metrics import Trackers
from regard.training.progress import CurrentFigures, PlainProgress, Progress
from regard.training.settings import TrainingSettings
from regard.training.trainer_state import Counters


@pytest.fixture(autouse=True)
def _no_trackers(monkeypatch):
    """Avoid TensorBoard: its import takes seconds, and these runs last only a few."""
    monkeypatch.setattr(metrics, "open_trackers", lambda names, folder, resume_step: Trackers({}))


OPEN = ("steps", "warmup", "validate_every")


def simulated(settings, pace, validation, prepared=0.0, average=0.0):
    """Simulate a run on its own clock; return its final settings, step and seconds, and its last rate.

    `pace(step)` and `validation(step)` are seconds.
    """
    now, timetable = Counters(seconds=prepared), Timetable(settings)
    timetable.begin(now)
    rates = []
    while True:
        now.step += 1
        rates.append(rate_at(now.step, settings))
        now.seconds += pace(now.step)
        last = now.step >= settings.steps
        validated = last or now.step % settings.validate_every == 0
        if validated:
            now.seconds += validation(now.step)
            timetable.note_validation(validation(now.step))
        if not last and timetable.is_due(now, validated):
            settings = timetable.fit(now)
            now.fitted = timetable.record(settings)
        late = now.seconds + timetable.reserve > timetable.limit
        if last or late:
            break
    now.seconds += 0 if validated else validation(now.step)
    return settings, now.step, now.seconds + average, rates


@pytest.mark.parametrize("seed", range(25))
def test_a_fitted_schedule_ends_with_the_time(seed):
    """With all sizes of steps and validations, noise and a drift, the run ends on time with the lowest rate."""
    draw = random.Random(seed)
    minutes = draw.choice([0.5, 2, 30, 600])
    step, drift = draw.uniform(0.001, 0.01) * minutes, draw.uniform(0.7, 1.4)
    cost = draw.uniform(0, 0.03) * 60 * minutes
    settings = TrainingSettings(minutes=minutes, fit=OPEN, schedule="cosine", steps=1000, warmup=100, validate_every=50)
    expected = 60 * minutes / step

    def pace(number):
        late = min(1.0, number / expected)
        return step * draw.uniform(0.8, 1.2) * (1 + (drift - 1) * late) * (20 if number == 1 else 1)

    settings, steps, seconds, rates = simulated(settings, pace, lambda _: cost, prepared=draw.uniform(0, 3))
    assert 0.93 * 60 * minutes - 2 * cost - 30 * step < seconds < 1.02 * 60 * minutes + 2 * step
    assert rates[-1] < 0.06 * settings.rate, "the schedule was cut off"
    assert steps <= settings.steps
    assert max(rates) > 0.8 * settings.rate
    assert settings.warmup <= max(1, steps // 5)


def test_steps_that_were_set_are_the_most():
    few = TrainingSettings(minutes=10, schedule="cosine", steps=50, warmup=5, validate_every=25)
    settings, steps, seconds, _ = simulated(few, lambda _: 0.1, lambda _: 1.0)
    assert (settings.steps, settings.warmup, steps) == (50, 5, 50)
    assert seconds < 10
    many = replace(few, steps=100_000, warmup=10_000, validate_every=500)
    settings, steps, seconds, rates = simulated(many, lambda _: 0.1, lambda _: 1.0)
    assert settings.validate_every == 500
    assert 550 < seconds < 605
    assert 0.05 < settings.warmup / settings.steps < 0.15  # the same share as in the configured schedule
    assert rates[-1] < 0.06 * settings.rate


def test_validations_do_not_take_all_the_time():
    slow = TrainingSettings(minutes=10, fit=OPEN, schedule="cosine", steps=1000, warmup=100)
    _, steps, seconds, _ = simulated(slow, lambda _: 0.02, lambda _: 40.0)
    assert seconds < 645
    assert steps * 0.02 > 300


class Clock:
    """A clock that only steps and validations advance, however busy the machine is."""

    def __init__(self):
        self.seconds = 100.0

    def monotonic(self):
        return self.seconds


CLOCK = Clock()


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(loop, "time", CLOCK)
    return CLOCK


class Slow(Line):
    """A task whose steps and validations take time."""

    def move(self, batch, device):
        CLOCK.seconds += 0.015
        return batch

    def validate(self):
        CLOCK.seconds += 0.05
        return super().validate()


class Watching(Progress):
    def __init__(self):
        self.records, self.lines, self.limits = [], [], []

    def step(self, record):
        self.records.append(dict(record))

    def say(self, text):
        self.lines.append(text)

    def limit(self, seconds):
        self.limits.append(seconds)


LIMITED = {"steps": 10**6, "warmup": 10**5, "fit": OPEN, "schedule": "cosine", "validate_every": 10**5, "log_every": 1}


def test_a_run_ends_with_the_time(tmp_path, clock):
    progress, seconds = Watching(), 3.0
    settings = training(**LIMITED, minutes=seconds / 60)
    began = clock.seconds - 0.4  # the preparation of the data came earlier
    result = train(Slow(), settings, tmp_path, progress=progress, began=began)
    taken = clock.seconds - began
    assert result.stop_reason == "minutes"
    assert result.seconds == pytest.approx(taken)
    assert seconds - 0.2 < taken <= seconds + 0.01
    last = [each for each in records(tmp_path, set()) if each["kind"] == "step"][-1]
    assert last["rate"] < 0.1 * settings.rate
    assert records(tmp_path)[-1]["kind"] == "valid"
    assert sum(line.startswith("time limit of 0.05 minutes: about ") for line in progress.lines) == 1
    assert "steps" not in progress.records[0]
    assert progress.records[-1]["steps"] >= result.step
    assert set(progress.limits) == {seconds}
    fitted = read_manifest(Checkpoints(tmp_path).last())["counters"]["fitted"]
    assert fitted["over"] == seconds
    again = train(Slow(), settings, tmp_path, resume=True)
    assert (again.step, again.first, again.stop_reason) == (result.step, result.step, "minutes")
    more = train(Slow(), replace(settings, minutes=5 / 60), tmp_path, resume=True)
    assert more.step > result.step
    assert 4.8 < more.seconds <= 5.01


def test_a_stopped_run_has_the_rest_of_its_time(tmp_path, clock):
    settings = training(**LIMITED, minutes=2.5 / 60)
    first = train(Slow(), settings, tmp_path, progress=StopAt(60))
    assert first.stop_reason == "signal"
    progress = Watching()
    rest = train(Slow(), settings, tmp_path, resume=True, progress=progress)
    assert rest.stop_reason == "minutes"
    assert 2.3 < rest.seconds <= 2.51
    assert "steps" in progress.records[0]  # the fitted steps come from the checkpoint


def test_without_a_limit_nothing_is_fitted(tmp_path):
    train(Line(), training(), tmp_path)
    assert read_manifest(Checkpoints(tmp_path).last())["counters"]["fitted"] == {}
    assert Timetable(training()).reserve == 0.0


def test_the_time_left_counts_to_the_limit():
    course = CurrentFigures(1000)
    course.limit = 60.0
    course.tick(0, 5.0)
    assert course.seconds_left() == 55
    course.tick(10, 20.0)
    assert course.seconds_left() == 40
    assert course.seconds_left(15) == 25
    assert course.times() == ["40 s left"]


def test_resuming_after_the_limit_says_to_give_more(tmp_path, capsys):
    given = table(tmp_path, training__minutes=1.0 / 60, training__log_every=1)
    del given["training"]["steps"]
    run = tmp_path / "run"
    first = report.train_and_report(given, run)
    said = capsys.readouterr().err
    assert first.stop_reason == "minutes"
    assert f"regard train --resume {run} --minutes 0.0333333" in (run / "report.html").read_text()
    assert "it took" in said
    written = read(run / "config.toml")["training"]
    assert written["fit"] == ["steps"]
    report.train_and_report(read(run / "config.toml"), run, resume=True)
    said = capsys.readouterr().err
    assert (
        "no step was taken, because the time limit of 0.0166667 minutes (training.minutes) is over; give more" in said
    )
    assert "--minutes 0.0333333" in said


@pytest.mark.parametrize("is_open", [False, True])
def test_a_checkpoint_that_takes_what_was_left_is_not_the_last(is_open, tmp_path, clock, monkeypatch):
    """The last checkpoint says that the time is over, so a user who resumes the run is told to allow more."""
    write = Checkpoints.write

    def write_slowly(*given):
        CLOCK.seconds += 2
        return write(*given)

    settings = training(steps=100_000, validate_every=9, minutes=2.0 / 60, fit=("steps",) if is_open else ())
    monkeypatch.setattr(Checkpoints, "write", write_slowly)
    first = train(Slow(), settings, tmp_path)
    assert (first.stop_reason, first.step) == ("minutes", 10), "one more step, whose checkpoint ends the run"
    assert records(tmp_path)[-1]["kind"] == "valid"
    assert Checkpoints(tmp_path).linked("best") == Checkpoints(tmp_path).linked("last") == "step-000010"
    again = train(Slow(), settings, tmp_path, resume=True)
    assert (again.stop_reason, again.step, again.first) == ("minutes", 10, 10)


def test_plain_lines_show_the_time_that_is_left(tmp_path, clock):
    lines = []

    class Stream:
        def write(self, text):
            lines.append(text)

        def flush(self):
            pass

        close = flush

    train(Slow(), training(**LIMITED, minutes=1.5 / 60), tmp_path, progress=PlainProgress(Stream()))
    assert any("2 s left" in line or "1 s left" in line for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_command_takes_its_time(tmp_path):
    """The whole command takes half a minute, plus Python's start."""
    source, target = write_pairs(tmp_path / "pairs", count=3000)
    run = tmp_path / "run"
    command = ["train", "--source", source, "--target", target, "--minutes", "0.5", "--out", str(run)]
    command += ["--set", f"data.cache={tmp_path / 'cache'}", "--device", "cpu"]
    command += ["--set", "training.log_every=1"]
    done = subprocess.run([sys.executable, "-m", "regard", *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    steps = [each for each in records(run, set()) if each["kind"] == "step"]
    peak = max(each["rate"] for each in steps)
    assert steps[-1]["rate"] < 0.1 * peak
    assert records(run, set())[-1]["seconds"] == pytest.approx(30, abs=6)


# ---- reasons to stop


@pytest.mark.parametrize(
    ("values", "patience", "stops", "best"),
    [
        ([1, 2, 3, 4, 5, 6], 2, 24, 24),
        ([3, 2, 1, 4, 5, 6], 2, 12, 4),
        ([3, 4, 4, 4, 5, 6], 2, 16, 8),  # an equal score is no improvement
        ([3, math.nan, math.nan, 4, 5, 6], 2, 12, 4),
        ([math.nan, math.nan, 1, 1, 1, 1], 3, 24, 12),
        ([3, 2, 1, 1, 1, 1], 0, 24, 4),
        ([None] * 6, 2, 24, 0),  # a missing measure is no reason to stop
    ],
)
def test_patience(tmp_path, values, patience, stops, best):
    settings = training(steps=24, patience=patience)
    result = train(Scripted(values), settings, tmp_path)
    assert (result.step, result.best_step) == (stops, best)
    assert result.stop_reason == ("finished" if stops == 24 else "patience")
    link = Checkpoints(tmp_path).linked("best")
    assert link == (f"step-{best:06d}" if best else None)
    assert Checkpoints(tmp_path).linked("last") == f"step-{stops:06d}"


def test_patience_goes_over_a_resume(tmp_path):
    values = [3, 4, 1, 1, 1, 9]
    whole = train(Scripted(values), training(steps=24, patience=3), tmp_path / "whole")
    run = tmp_path / "cut"
    assert train(Scripted(values), training(steps=24, patience=3), run, progress=StopAt(14)).step == 14
    rest = train(Scripted(values[3:]), training(steps=24, patience=3), run, resume=True)
    assert replace(rest, first=0, seconds=0.0) == replace(whole, first=0, seconds=0.0)
    assert rest.step == 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_the_update_finish(tmp_path, number):
    before = signal.getsignal(number)
    result = train(Line(), training(), tmp_path, progress=StopAt(2, number))
    assert (result.step, result.stop_reason) == (2, "signal")
    assert read_checkpoint(Checkpoints(tmp_path).last()).step == 2
    assert Checkpoints(tmp_path).linked("best") is None  # there was no validation
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_ignored(tmp_path, number):
    """A script's `&` or `nohup` ignores the signal."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        result = train(Line(), training(), tmp_path, progress=StopAt(2, number))
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)
    assert (result.step, result.stop_reason) == (8, "finished")


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


# ---- learning rates against their formulas


@given(step=st.integers(1, 10**6), warmup=st.integers(1, 10**4), peak=st.floats(1e-6, 10))
def test_noam_is_the_papers(step, warmup, peak):
    """The rate is d^-0.5 · min(t^-0.5, t · w^-1.5), scaled so that its peak, at t = w, is the rate given."""
    settings = training(schedule="noam", warmup=warmup, rate=peak)
    papers = min(step**-0.5, step * warmup**-1.5) / warmup**-0.5
    assert rate_at(step, settings) == pytest.approx(peak * papers)


@pytest.mark.parametrize("schedule", ["noam", "cosine", "constant"])
def test_it_grows_evenly_to_its_peak(schedule):
    settings = training(schedule=schedule, warmup=10, rate=2.0, steps=100)
    assert [rate_at(step, settings) for step in range(1, 11)] == pytest.approx([0.2 * step for step in range(1, 11)])
    later = [rate_at(step, settings) for step in range(10, 101)]
    assert all(b <= a for a, b in itertools.pairwise(later))


def test_cosine_ends_at_nothing():
    settings = training(schedule="cosine", warmup=0, rate=1.0, steps=8)
    assert rate_at(4, settings) == pytest.approx(0.5)
    assert rate_at(2, settings) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert rate_at(8, settings) == rate_at(9, settings) == pytest.approx(0, abs=1e-12)


def test_a_warm_up_longer_than_the_run():
    assert rate_at(5, training(schedule="cosine", warmup=10, rate=1.0, steps=5)) == 0.5


def test_constant_without_a_warm_up():
    assert {rate_at(step, training(schedule="constant", warmup=0, rate=0.3)) for step in (1, 2, 1000)} == {0.3}


def test_cosine_begins_where_the_warm_up_ends():
    """Halfway after the warm-up the rate is half of its peak, and at the last step zero."""
    settings = training(schedule="cosine", warmup=10, rate=1.0, steps=30)
    assert [rate_at(step, settings) for step in (5, 10, 20, 30)] == pytest.approx([0.5, 1.0, 0.5, 0.0], abs=1e-12)
