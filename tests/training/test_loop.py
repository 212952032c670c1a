"""The loop, with a task that has nothing of translation in it."""

import errno
import math
import os
import signal
import subprocess

import pytest
import torch
from tiny import Fit, Line, StopAt, first, records, same_tensors, training
from torch import nn

from regard.errors import CheckpointError, TrainingError
from regard.training import checkpoint, loop
from regard.training.checkpoint import Checkpoints, read_checkpoint, weights_of
from regard.training.distributed import Group
from regard.training.loop import Trainer, mix_seeds, train
from regard.training.progress import Progress
from regard.training.task import Loss, Position, Task
from regard.training.trainer_state import optimiser_tensors


class Doubling(Task):
    """The example of the module's own docstring, whole."""

    def __init__(self):
        self.objective = Mean(nn.Linear(1, 1))

    def epoch(self, number):
        return [(x, 2 * x) for x in torch.randn(10, 16, 1, generator=torch.Generator().manual_seed(number))]

    def count(self, plan):
        return len(plan[0])


class Mean(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, batch):
        return Loss((self.net(batch[0]) - batch[1]).square().sum())


class Said(Progress):
    def __init__(self):
        self.lines, self.steps = [], []

    def say(self, text):
        self.lines.append(text)

    def step(self, record):
        self.steps.append(dict(record))


def stepped(settings, task, run, count):
    """A trainer after so many updates, without records, validations and checkpoints."""
    trainer = Trainer(task, settings, run, Progress(), Group("cpu"))
    trainer.prepare(False)
    trainer.objective.train()
    with trainer.shares() as shares:
        for _ in range(count):
            trainer.update(shares)
    return trainer


def contents(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.parent.name != "tensorboard"}


def weights(task):
    return {name: tensor.detach().clone() for name, tensor in weights_of(task.objective).items()}


def test_ten_lines_are_a_task(tmp_path):
    task = Doubling()
    result = train(task, training(steps=300, rate=0.05, validate_every=300), tmp_path)
    assert (result.step, result.why, result.best) == (300, "finished", None)
    assert task.objective.net.weight.item() == pytest.approx(2, abs=0.01)
    assert Checkpoints(tmp_path).last().name == "step-000300"


def test_the_loop_is_adamw_over_the_mean_of_a_batch(tmp_path):
    """Against a loop that anybody would write."""
    task = Line(dtype=torch.float64)
    mine, plans = Line(dtype=torch.float64), Line(dtype=torch.float64).stream(Position())
    settings = training(clip=0.0, weight_decay=0.1, betas=(0.8, 0.95))
    optimiser = torch.optim.AdamW(mine.objective.parameters(), lr=0.01, betas=(0.8, 0.95), eps=1e-9, weight_decay=0.1)
    for _ in range(7):
        _, plan = next(plans)
        optimiser.zero_grad()
        (mine.objective(plan).total / len(plan[0])).backward()
        optimiser.step()
    stepped(settings, task, tmp_path, 7)
    for name, tensor in weights(mine).items():
        torch.testing.assert_close(weights(task)[name], tensor, rtol=0, atol=1e-12)


@pytest.mark.parametrize("clip", [0.01, 0.5, 1e6])
def test_clipping_is_clip_grad_norm(tmp_path, clip):
    task, mine = Line(), Line()
    optimiser = torch.optim.AdamW(mine.objective.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    plans = mine.stream(Position())
    for _ in range(5):
        _, plan = next(plans)
        optimiser.zero_grad()
        (mine.objective(plan).total / len(plan[0])).backward()
        torch.nn.utils.clip_grad_norm_(mine.objective.parameters(), clip)
        optimiser.step()
    trainer = stepped(training(clip=clip), task, tmp_path, 5)
    for name, parameter in mine.objective.named_parameters():
        torch.testing.assert_close(weights(task)[name], parameter.detach(), rtol=1e-4, atol=1e-6)
        state = trainer.updater.optimiser.state[dict(task.objective.named_parameters())[name]]
        # Adam hardly sees a scale; its first moments do.
        torch.testing.assert_close(state["exp_avg"], optimiser.state[parameter]["exp_avg"], rtol=1e-4, atol=1e-8)


def test_accumulating_is_a_larger_batch(tmp_path):
    """Two batches of 8 and 3 rows are one of 11: what is divided by is what they count together."""

    class Uneven(Line):
        def epoch(self, number):
            for x, y in super().epoch(number):
                yield x[:8], y[:8]
                yield x[8:], y[8:]

    small, large = Uneven(rows=11, dtype=torch.float64), Line(rows=11, dtype=torch.float64)
    stepped(training(accumulate=2), small, tmp_path / "a", 6)
    stepped(training(), large, tmp_path / "b", 6)
    for name, tensor in weights(large).items():
        torch.testing.assert_close(weights(small)[name], tensor, rtol=0, atol=1e-12)


def test_records_are_means_since_the_last_one(tmp_path):
    train(Line(), training(rate=1e-30), tmp_path)
    losses = [float(Line().objective(plan).total.detach()) / 8 for _, plan in first(Line().stream(Position()), 8)]
    found = [record for record in records(tmp_path) if record["kind"] == "step"]
    assert [record["step"] for record in found] == [2, 4, 6, 8]
    for i, record in enumerate(found):
        assert record["loss"] == pytest.approx((losses[2 * i] + losses[2 * i + 1]) / 2, rel=1e-6)
        assert record["epoch"] == (2 * i + 1) // 5


# ---- numbers that are not finite


class Poisoned(Line):
    """Its gradient is not finite in some steps, though the loss may be."""

    def __init__(self, steps, value=math.nan):
        super().__init__()
        self.poison, self.value = set(steps), value

    def batch(self, plan, position):
        number = position.epoch * self.batches + position.batch + 1
        return (plan[0] * self.value, plan[1]) if number in self.poison else plan


def kept_by(trainer):
    return optimiser_tensors(trainer.updater.optimiser, trainer.updater.names, trainer.updater.parameters)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_step_that_is_not_finite_is_left_out_and_counted(tmp_path, value):
    task, clean = Poisoned({3}, value), Line()
    trainer = stepped(training(), task, tmp_path / "a", 2)
    before, state = weights(task), {key: tensor.clone() for key, tensor in kept_by(trainer).items()}
    with trainer.shares() as shares:
        trainer.update(shares)
    assert same_tensors(weights(task), before)
    assert same_tensors(kept_by(trainer), state)  # Adam's moments and its count of steps too
    assert int(trainer.updater.skipped) == 1
    trainer.read_sums()
    assert trainer.now.skipped == 1
    stepped(training(), clean, tmp_path / "b", 2)
    assert same_tensors(weights(clean), before)


def test_skipped_steps_are_told_and_kept_over_a_resume(tmp_path):
    said = Said()
    task = Poisoned({2, 3})
    train(task, training(steps=4), tmp_path, progress=said)
    steps = [record for record in records(tmp_path) if record["kind"] == "step"]
    assert [record["skipped"] for record in steps] == [1, 2]
    assert sum("not finite" in line for line in said.lines) == 2
    train(Line(), training(steps=6), tmp_path, resume=True)
    assert records(tmp_path)[-2]["skipped"] == 2


def test_nothing_finite_for_long_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "HOPELESS", 6)
    task = Poisoned(range(5, 1000))
    with pytest.raises(TrainingError, match="no finite gradient in the last 6 steps.*step-000008") as caught:
        train(task, training(steps=1000, validate_every=4), tmp_path)
    assert str(caught.value).startswith("step 10: ")
    # What it saved in between has the weights of the last finite step.
    assert same_tensors(
        read_checkpoint(tmp_path / "checkpoints/step-000008").model,
        read_checkpoint(tmp_path / "checkpoints/step-000004").model,
    )


# ---- memory


class Cramped(Fit):
    """Has room for so many rows, in the forward or in the backward pass."""

    def __init__(self, room, where):
        super().__init__(torch.float64)
        self.room, self.where, self.seen = room, where, []

    def forward(self, batch):
        rows = len(batch[0])
        self.seen.append(rows)
        if self.where == "forward" and rows > self.room and self.training:
            raise torch.OutOfMemoryError("no room")
        x = batch[0]
        if self.where == "backward" and rows > self.room and self.training:
            x = Tight.apply(x.clone().requires_grad_())
        if self.where == "host" and rows > self.room and self.training:
            raise RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
            )
        return super().forward((x, batch[1]))


class Tight(torch.autograd.Function):
    """Fails when everything behind it has its gradients already."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise torch.OutOfMemoryError("no room")


@pytest.mark.parametrize("where", ["forward", "backward", "host"])
@pytest.mark.parametrize(("rows", "room", "accumulate"), [(8, 4, 1), (7, 2, 1), (3, 1, 1), (8, 1, 2), (5, 3, 3)])
def test_out_of_memory_changes_nothing(tmp_path, where, rows, room, accumulate):
    cramped, plain = Line(rows, dtype=torch.float64), Line(rows, dtype=torch.float64)
    torch.manual_seed(3)
    cramped.objective = Cramped(room, where)
    said = Said()
    settings = training(accumulate=accumulate, steps=6)
    train(cramped, settings, tmp_path / "a", progress=said)
    train(plain, settings, tmp_path / "b")
    for name, tensor in weights(plain).items():
        torch.testing.assert_close(weights(cramped)[name], tensor, rtol=0, atol=1e-12)
    assert len([line for line in said.lines if "out of memory" in line]) >= 6
    for one, other in zip(records(tmp_path / "a"), records(tmp_path / "b"), strict=True):
        assert one.keys() == other.keys()
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-12)


def test_a_batch_that_cannot_be_cut_does_not_stop_the_others(tmp_path):
    """One row beside eight, in one update: only the eight are too many."""

    class Odd(Line):
        def epoch(self, number):
            for x, y in super().epoch(number):
                yield x, y
                yield x[:1], y[:1]

    task, plain = Odd(dtype=torch.float64), Odd(dtype=torch.float64)
    torch.manual_seed(3)
    task.objective = Cramped(2, "forward")
    stepped(training(accumulate=2), task, tmp_path / "a", 3)
    stepped(training(accumulate=2), plain, tmp_path / "b", 3)
    for name, tensor in weights(plain).items():
        torch.testing.assert_close(weights(task)[name], tensor, rtol=0, atol=1e-12)
    task.objective.room = 0
    with pytest.raises(TrainingError, match="one row, and no room"):
        stepped(training(), task, tmp_path / "c", 1)


@pytest.mark.parametrize(
    ("halves", "said"),
    [(lambda batch: Task().halves(batch), "cannot be split"), (lambda batch: [batch], "get no smaller")],
)
def test_no_room_at_all_is_one_sentence(tmp_path, halves, said):
    task = Line(dtype=torch.float64)
    task.objective = Cramped(0, "forward")
    task.halves = halves
    with pytest.raises(TrainingError, match=said):
        train(task, training(), tmp_path)


def test_another_error_is_not_taken_for_memory(tmp_path):
    class Wrong(Fit):
        def forward(self, batch):
            raise RuntimeError("shapes cannot be multiplied")

    task = Line()
    task.objective = Wrong()
    with pytest.raises(RuntimeError, match="shapes"):
        train(task, training(), tmp_path)


# ---- the disk


class Full:
    """A disk that is full from some write on."""

    def __init__(self, monkeypatch, calls):
        self.left, self.real = calls, checkpoint.write_synced
        monkeypatch.setattr(checkpoint, "write_synced", self)

    def __call__(self, path, content):
        if self.left == 0:
            path.write_bytes(content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left -= 1
        self.real(path, content)


@pytest.mark.parametrize("calls", range(3, 6))  # each file of the second checkpoint
def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path, monkeypatch, calls):
    Full(monkeypatch, calls)
    with pytest.raises(TrainingError, match="step-000008: not written, the disk is full; the last whole.*step-000004"):
        train(Line(), training(), tmp_path)
    monkeypatch.undo()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "best",
        "best.json",
        "last",
        "step-000004",
    ]
    assert read_checkpoint(Checkpoints(tmp_path).last()).step == 4
    assert train(Line(), training(), tmp_path, resume=True).step == 8
    train(Line(), training(), tmp_path / "unhurt")
    assert records(tmp_path) == records(tmp_path / "unhurt")


def test_a_full_disk_before_the_first_checkpoint(tmp_path, monkeypatch):
    Full(monkeypatch, 0)
    with pytest.raises(TrainingError, match="the disk is full; no checkpoint was written before"):
        train(Line(), training(), tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
@pytest.mark.filterwarnings(  # TensorBoard's thread dies of it, which is not our affair
    "ignore::pytest.PytestUnhandledThreadExceptionWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("what", ["checkpoint", "metrics"])
def test_a_disk_that_really_is_full(tmp_path, what):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no mount here")
    try:
        run = disk / "run"
        train(Line(), training(steps=4), run)
        task = Line()
        left = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        (disk / "filler").write_bytes(bytes(left - (8192 if what == "checkpoint" else 0)))
        every = (
            {"log_every": 100, "validate_every": 8} if what == "checkpoint" else {"log_every": 1, "validate_every": 500}
        )
        with pytest.raises(TrainingError, match=f"{'step-' if what == 'checkpoint' else 'metrics'}.*the disk is full"):
            train(task, training(steps=1000, **every), run, resume=True)
        last = read_checkpoint(Checkpoints(run).last())
        assert last.step >= 4
        (disk / "filler").unlink()
        assert train(Line(), training(steps=last.step + 4), run, resume=True).step == last.step + 4
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


# ---- when it stops, and what it keeps


class Scripted(Line):
    """Its validations give what the test says."""

    metric = "bleu"

    def __init__(self, values):
        super().__init__()
        self.values = iter(values)

    def validate(self):
        value = next(self.values)
        return {} if value is None else {"bleu": value}


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


def test_a_smaller_loss_is_better(tmp_path):
    result = train(Line(), training(steps=40, rate=0.05), tmp_path)
    values = [record["loss"] for record in records(tmp_path) if record["kind"] == "valid"]
    assert result.best == min(values)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_as_many_are_kept_as_asked_and_the_best(tmp_path, keep):
    train(Scripted([1, 9, 2, 2, 2, 2]), training(steps=24, keep=keep), tmp_path)
    expected = {f"step-{step:06d}" for step in [8, *range(24, 24 - 4 * keep, -4)]}
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == expected | {"best", "best.json", "last"}


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


def test_a_finished_run_resumed_does_nothing_more(tmp_path):
    train(Line(), training(), tmp_path)
    before = contents(tmp_path)
    result = train(Line(), training(), tmp_path, resume=True)
    assert (result.step, result.why) == (8, "finished")
    assert contents(tmp_path) == before


def test_an_epoch_without_batches_is_named(tmp_path):
    task = Line(batches=0)
    with pytest.raises(TrainingError, match="no batches to train on"):
        train(task, training(), tmp_path)


def test_a_checkpoint_of_another_task_is_refused(tmp_path):
    task = Line()
    task.fingerprint = lambda: {"data": "a"}
    train(task, training(), tmp_path)
    task.fingerprint = lambda: {"data": "b"}
    with pytest.raises(CheckpointError, match='step-000008: made with data "a", and this run has "b"'):
        train(task, training(steps=9), tmp_path, resume=True)


def test_nothing_to_resume(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        train(Line(), training(), tmp_path, resume=True)


# ---- averages


def test_a_moving_average_is_measured_and_saved_and_the_raw_weights_go_on(tmp_path):
    class Noting(Line):
        def validate(self):
            self.measured = weights(self)
            return super().validate()

    task = Noting()
    train(task, training(ema=0.9, steps=4), tmp_path)
    # A loop of its own over the weights of a run without.
    plain = Line()
    trainer = stepped(training(), plain, tmp_path / "b", 0)
    mean = weights(plain)
    with trainer.shares() as shares:
        for step in range(1, 5):
            trainer.update(shares)
            decay = min(0.9, (1 + step) / (10 + step))
            mean = {name: decay * mean[name] + (1 - decay) * tensor for name, tensor in weights(plain).items()}
    found = read_checkpoint(Checkpoints(tmp_path).last())
    assert same_tensors(found.model, task.measured)
    for name, tensor in mean.items():
        torch.testing.assert_close(found.model[name], tensor, rtol=1e-5, atol=1e-7)
        assert torch.equal(found.trainer[f"raw.{name}"], weights(plain)[name])
    assert same_tensors(weights(task), weights(plain))


@pytest.mark.parametrize("better", [True, False])
def test_the_mean_of_checkpoints_is_taken_if_it_is_better(tmp_path, better):
    task = Scripted([1, 2, 3, 4 if better else 2])
    said = Said()
    result = train(task, training(steps=12, keep=3, average=3), tmp_path, progress=said)
    folder = tmp_path / "checkpoints"
    parts = [read_checkpoint(folder / f"step-{step:06d}").model for step in (4, 8, 12)]
    mean = read_checkpoint(folder / "average", trainer=False).model
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, sum(part[name] for part in parts) / 3, rtol=1e-6, atol=1e-7)
    assert Checkpoints(tmp_path).linked("best") == ("average" if better else "step-000012")
    assert result.best == (4 if better else 3)
    assert said.lines[-1].endswith(": better" if better else ": not better")
    # A resume goes on from the last step, not from the mean, and has the mean to beat.
    longer = train(Scripted([3.5, 1.0]), training(steps=16, keep=3, average=3), tmp_path, resume=True)
    assert longer.best == (4 if better else 3.5)
    assert Checkpoints(tmp_path).linked("best") == ("average" if better else "step-000016")
    if better:
        assert same_tensors(read_checkpoint(folder / "average", trainer=False).model, mean)


def test_one_checkpoint_has_no_mean(tmp_path):
    train(Line(), training(steps=4, average=2), tmp_path)
    assert not (tmp_path / "checkpoints/average").exists()


# ---- what is random


def test_neighbouring_seeds_have_nothing_in_common():
    seen = {mix_seeds(seed, step, rank) for seed in range(10) for step in range(50) for rank in range(4)}
    assert len(seen) == 2000
    assert all(0 <= number < 2**64 for number in seen)
    bits = [bin(mix_seeds(1, step, 0) ^ mix_seeds(1, step + 1, 0)).count("1") for step in range(200)]
    assert 28 < sum(bits) / len(bits) < 36


def test_the_random_numbers_of_a_step_hang_on_the_step_alone(tmp_path):
    class Noise(Line):
        def __init__(self):
            super().__init__()
            self.drawn = []

        def batch(self, plan, position):
            self.drawn.append(float(torch.rand(())))
            return plan

        def validate(self):
            torch.rand(7)
            return super().validate()

    one, other = Noise(), Noise()
    train(one, training(), tmp_path / "a")
    train(other, training(validate_every=1, log_every=1), tmp_path / "b")
    assert one.drawn == other.drawn
    assert len(set(one.drawn)) == 8
