"""A kill never costs more than the work since the last checkpoint.

The tests fork processes from this one, which has loaded torch, and kill them: at random moments while they save without
pause, and at every single call that writes a checkpoint to disk.
"""

import os
import random
import shutil
import signal
import time

import pytest
import torch
from forked import forked
from tiny import TIMES, Line, StopAt, records, same_tensors, table, training

from regard import report
from regard.training import Checkpoints, Progress, Task, metrics, read_checkpoint, train, weight_files
from regard.training.metrics import Trackers

ALWAYS = {"steps": 100_000, "validate_every": 1, "log_every": 1, "ema": 0.9}


class Announcing(Line):
    """A task that writes to a pipe every step whose checkpoint is complete, and so safe from a kill."""

    def __init__(self, pipe: int | None = None):
        super().__init__()
        self.pipe, self.validated = pipe, 0

    def batch(self, plan, position):
        return position.batch + position.epoch * self.batches, plan  # one batch a step

    def move(self, batch, device):
        if self.pipe is not None and batch[0]:  # each update is saved before the next begins
            os.write(self.pipe, batch[0].to_bytes(4, "big"))
        return batch[1]


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """Use one thread, as a forked process has no others, and no TensorBoard, which would start one."""
    monkeypatch.setattr(metrics, "open_trackers", lambda names, folder, resume_step: Trackers({}))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def announced(pipe: int) -> int:
    """Return the last step that the process announced as saved."""
    last = 0
    while content := os.read(pipe, 4):
        last = int.from_bytes(content, "big")
    return last


def killed_after(seconds: float, run, resume: bool) -> int:
    read, write = os.pipe()
    child = forked(lambda: train(Announcing(write), training(**ALWAYS), run, resume=resume))
    os.close(write)
    if not resume:
        os.read(read, 4)  # from the first checkpoint on
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "it ended by itself"
    last = announced(read)
    os.close(read)
    return last


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_random_kills(tmp_path, kills):
    safe = 0
    for number in range(kills):
        safe = max(safe, killed_after(random.uniform(0.0, 0.15), tmp_path, resume=number > 0))
        last = Checkpoints(tmp_path).last()
        found = read_checkpoint(last)
        assert found.step >= safe
        assert last.name == f"step-{found.step:06d}"
        weight_files.load_weights(Line().objective, found.model, str(last))
        for each in Checkpoints(tmp_path).steps():  # every other checkpoint in the run is complete, too
            read_checkpoint(each)
        safe = found.step
    result = train(Line(), training(**{**ALWAYS, "steps": safe + 3}), tmp_path, resume=True)
    assert (result.step, result.stop_reason) == (safe + 3, "finished")
    assert not list((tmp_path / "checkpoints").glob(".*"))
    # It equals a run without a kill. (It has thousands of validations and steps; comparing the weights is enough.)
    unhurt = Line()
    train(unhurt, training(steps=safe + 3, validate_every=10**6, ema=0.9), tmp_path / "unhurt")
    assert same_tensors(
        read_checkpoint(Checkpoints(tmp_path).last()).trainer,
        read_checkpoint(Checkpoints(tmp_path / "unhurt").last()).trainer,
    )


# ---- every call, one after the other


CALLS = (
    (os, "fsync"),
    (os, "rename"),
    (os, "replace"),
    (os, "symlink"),
    (os, "unlink"),
    (os, "rmdir"),
    (os, "mkdir"),
    (os, "open"),
)


def dying_at(call: int) -> None:
    """From now on, let the process die just before its `call`-th change of the disk."""
    left = [call]

    def dying(real):
        def act(*arguments, **options):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return act

    for module, name in CALLS:
        setattr(module, name, dying(getattr(module, name)))


class Scripted(Task):
    """A task without training, with validations that improve at steps 1 and 3."""

    metric = "bleu"

    def __init__(self):
        self.line, self.number = Line(), 0
        self.objective, self.epoch = self.line.objective, self.line.epoch
        self.count = self.line.count

    def stream(self, position):
        self.number = position.batch + position.epoch * self.line.batches
        return super().stream(position)

    def validate(self):
        self.number += 1
        return {"bleu": {1: 5.0, 3: 6.0, 5: 7.0}.get(self.number, 1.0)}


# Step 3 is a new best, and two checkpoints are removed; step 2 is none and removes none, step 4 removes one.
@pytest.mark.parametrize("step", [3, pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_a_kill_at_every_call(tmp_path, step):
    """Kill the save of one step at its first call, its second, … until it succeeds."""

    class DieIn(Progress):
        def __init__(self, call):
            self.call = call

        def samples(self, samples):
            if self.seen == step:
                dying_at(self.call)

        def valid(self, record):
            self.seen = record["step"]

    base = tmp_path / "base"
    settings = {"steps": step - 1, "validate_every": 1, "keep": 1, "log_every": 100}
    train(Scripted(), training(**settings), base)
    steps = set()
    for call in range(1, 200):
        run = tmp_path / str(call)
        shutil.copytree(base, run, symlinks=True)

        def work(call=call, run=run):
            train(Scripted(), training(**{**settings, "steps": step}), run, resume=True, progress=DieIn(call))
            os._exit(0)

        status = os.waitpid(forked(work), 0)[1]
        assert status in (0, signal.SIGKILL)
        found = read_checkpoint(Checkpoints(run).last())
        assert found.step in (step - 1, step)
        steps.add(found.step)
        best = Checkpoints(run).best()
        assert best is not None
        read_checkpoint(best)
        # The best of all checkpoints, even if the kill came before the record of the best.
        assert best.name == f"step-{3 if found.step >= 3 else 1:06d}"
        result = train(Scripted(), training(**{**settings, "steps": step + 2}), run, resume=True)
        assert result.step == step + 2
        # The links are those of a run without a kill, even if the kill came before a link was made.
        expected = max(number for number in (1, 3, 5) if number <= step + 2)
        assert (result.best_step, Checkpoints(run).linked("best")) == (expected, f"step-{expected:06d}")
        kept = {f"step-{number:06d}" for number in (expected, step + 2)}
        assert {path.name for path in (run / "checkpoints").iterdir()} == kept | {"best", "best.json", "last"}
        shutil.rmtree(run)
        if status == 0:
            break
    assert call > 12, "it did not die often enough to show anything"
    assert steps == {step - 1, step}


def test_a_kill_at_every_call_of_a_second_writing(tmp_path):
    """The mean of checkpoints writes one name twice: afterwards the old or the new one is there, and complete."""
    model, other = {"w": torch.zeros(3)}, {"w": torch.ones(3)}
    seen = set()
    for call in range(1, 100):
        run = tmp_path / str(call)
        checkpoints = Checkpoints(run)
        checkpoints.write("average", model, {}, {"step": 1})

        def work(call=call, checkpoints=checkpoints):
            dying_at(call)
            checkpoints.write("average", other, {}, {"step": 1})
            os._exit(0)

        status = os.waitpid(forked(work), 0)[1]
        checkpoints.clean()
        seen.add(float(read_checkpoint(run / "checkpoints/average").model["w"].sum()))
        assert [path.name for path in (run / "checkpoints").iterdir()] == ["average"]
        if status == 0:
            break
    assert call > 8
    assert seen == {0.0, 3.0}


# ---- between the last step and the end


class Curved(Line):
    """A task whose score falls with the distance of the weights' sum from `best`, to choose the best checkpoint."""

    metric = "bleu"

    def __init__(self, best: float = 0.0):
        super().__init__()
        self.best = best

    def total(self):
        return sum(float(each.detach().double().sum()) for each in self.objective.parameters())

    def validate(self):
        # It depends on the weights, which a resumed run has too: no process needs to remember anything.
        return {"bleu": -abs(self.total() - self.best), "loss": 1.0}


ENDS = {"steps": 6, "validate_every": 3, "log_every": 3, "keep": 2, "average": 2, "ema": 0.9, "metric": "bleu"}


class DieAtTheEnd(Progress):
    """A progress that dies at a call after the last step, before or after its validation is recorded."""

    def __init__(self, call: int):
        self.call, self.step_now, self.armed = call, 0, False

    def tick(self, step, seconds):
        self.step_now = step

    def step(self, record):
        self.step_now = record["step"]

    def begin_validation(self):
        if self.step_now == ENDS["steps"] and not self.armed:
            self.armed = True
            dying_at(self.call)


def ended_like(run, unhurt) -> None:
    """Check that all files that are read later equal those of a run without a kill."""
    for name in ("step-000003", "step-000006", "average"):
        mine, its = (read_checkpoint(each / "checkpoints" / name) for each in (run, unhurt))
        assert same_tensors(mine.model, its.model), name
        assert same_tensors(mine.trainer, its.trainer), name
    assert Checkpoints(run).best().name == Checkpoints(unhurt).best().name
    for link in ("best", "last"):
        assert Checkpoints(run).linked(link) == Checkpoints(unhurt).linked(link)
    mine, its = (records(of, TIMES | {"steps"}) for of in (run, unhurt))
    # A kill between the two records of the average may leave the first one twice.
    assert [each for i, each in enumerate(mine) if each not in mine[:i]] == its


@pytest.mark.parametrize("best", ["average", pytest.param("step-000006", marks=pytest.mark.slow)])
def test_a_kill_between_the_last_step_and_the_end(tmp_path, best):
    """Kill at every call that changes the disk from there on; the resumed run ends like one without a kill."""
    train(Curved(), training(**ENDS), tmp_path / "measured")
    model = read_checkpoint(tmp_path / "measured/checkpoints" / best).model
    target = sum(float(each.double().sum()) for each in model.values())
    unhurt = tmp_path / "unhurt"
    train(Curved(target), training(**ENDS), unhurt)
    assert Checkpoints(unhurt).best().name == best
    for call in range(1, 300):
        run = tmp_path / str(call)

        def work(call=call, run=run):
            train(Curved(target), training(**ENDS), run, progress=DieAtTheEnd(call))
            os._exit(0)

        status = os.waitpid(forked(work), 0)[1]
        assert status in (0, signal.SIGKILL)
        result = train(Curved(target), training(**ENDS), run, resume=True)
        assert (result.step, result.stop_reason) == (ENDS["steps"], "finished")
        ended_like(run, unhurt)
        before = (run / "metrics.jsonl").read_bytes(), (run / "checkpoints/best.json").read_bytes()
        train(Curved(target), training(**ENDS), run, resume=True)  # once more, which changes nothing
        assert ((run / "metrics.jsonl").read_bytes(), (run / "checkpoints/best.json").read_bytes()) == before
        ended_like(run, unhurt)
        shutil.rmtree(run)
        if status == 0:
            break
    assert call > 25, "it did not die often enough to show anything"


def test_a_kill_before_the_report(tmp_path):
    """After a kill before the report, resuming through the command writes the report and the average."""
    run = tmp_path / "run"
    given = table(tmp_path, training__average=2, training__keep=2, training__ema=0.9)

    def work():
        report.report = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        report.train_and_report(given, run)

    assert os.waitpid(forked(work), 0)[1] == signal.SIGKILL
    assert not (run / "report.html").exists()
    before = records(run)
    assert before[-1]["kind"] == "average"
    (run / "metrics.jsonl").write_text("".join((run / "metrics.jsonl").read_text().splitlines(True)[:-2]))
    if Checkpoints(run).best().name != "average":
        shutil.rmtree(run / "checkpoints/average")  # as if the kill had come before the average
    report.train_and_report(given, run, resume=True)
    assert (run / "checkpoints/average").is_dir()
    assert records(run) == before
    assert (run / "report.html").read_text().rstrip().endswith("</html>")


def test_a_validation_that_is_due_comes_with_the_resume(tmp_path):
    """A signal stops the run at the limit of a later command: that step was saved, but not validated."""
    run = tmp_path / "run"
    train(Curved(), training(**ENDS), tmp_path / "whole")
    stopped = train(Curved(), training(**{**ENDS, "steps": 12}), run, progress=StopAt(6))
    assert (stopped.step, stopped.stop_reason) == (6, "signal")
    run2 = tmp_path / "early"
    assert train(Curved(), training(**{**ENDS, "steps": 12, "log_every": 5}), run2, progress=StopAt(5)).step == 5
    for each, steps in ((run, 6), (run2, 5)):
        resumed = train(Curved(), training(**{**ENDS, "steps": steps}), each, resume=True)
        assert (resumed.step, resumed.stop_reason) == (steps, "finished")
        assert resumed.best is not None
        assert records(each)[-1]["kind"] == "average"
        assert [record["step"] for record in records(each) if record["kind"] == "valid"] == [3, steps, steps]
    ended_like(run, tmp_path / "whole")
