"""The best validation, and how long patience waits; files of an unfinished run, and what a resume restores."""

import errno
import gc
import math
import os
import subprocess
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import Line, records, same_tensors, training
from training.cases import Said, Scripted, stepped, weights

from regard.errors import CheckpointError, TrainingError
from regard.training import checkpoint
from regard.training.checkpoint import Checkpoints, read_checkpoint
from regard.training.loop import train
from regard.training.trainer_state import Counters

FIGURES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.5, math.nan]), st.sampled_from([0.5, 1.0, 2.0, 3.0, math.inf, math.nan])),
    min_size=1,
    max_size=12,
)


def taken(figures, metric="bleu"):
    now, best = Counters(), []
    for step, (value, loss) in enumerate(figures, 1):
        now.step = step
        best.append(now.compare({metric: value, "loss": loss} if metric != "loss" else {"loss": loss}, metric))
    return now, best


@given(FIGURES)
def test_the_best_has_the_highest_metric_and_of_those_the_lowest_loss(figures):
    now, _ = taken(figures)
    usable = [(value, -loss) for value, loss in figures if math.isfinite(value) and math.isfinite(loss)]
    if not usable:
        assert now.best is None
        return
    assert (now.best, -now.best_loss) == max(usable)
    assert figures[now.best_step - 1] == (now.best, now.best_loss)


@given(FIGURES)
def test_patience_does_not_wait_while_the_loss_falls(figures):
    now, best = taken(figures)
    lowest, fell = math.inf, []
    for _, loss in figures:
        fell.append(loss < lowest)
        lowest = min(lowest, loss) if math.isfinite(loss) else lowest
    since = next(
        (i for i, moved in enumerate(reversed([a or b for a, b in zip(best, fell, strict=True)])) if moved), None
    )
    assert now.waited == (len(figures) if since is None else since)


def test_a_metric_that_stays_at_nothing_loses_no_model():
    now, best = taken([(0.0, loss) for loss in (5.0, 4.0, 3.0, 2.0, 2.5)])
    assert best == [True, True, True, True, False]
    assert (now.best_step, now.waited) == (4, 1)


@pytest.mark.parametrize("metric", ["loss", "bleu"])
def test_nothing_held_out_is_nothing_to_wait_for(metric):
    now = Counters(step=3)
    assert not now.compare({}, metric)
    assert (now.waited, now.best) == (0, None)


def test_a_run_of_before_knows_its_best_without_its_loss():
    now = Counters(step=9, best=0.4, best_step=5)
    assert not now.compare({"bleu": 0.3, "loss": 1.0}, "bleu")
    assert now.compare({"bleu": 0.4, "loss": 1.0}, "bleu")


# ---- files of an unfinished run, and what a resume restores: whole checkpoints, averages, and a full disk


class Full:
    """A disk that is full after some writes."""

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
    with pytest.raises(
        TrainingError, match="step-000008: not written, the disk is full; the last complete.*step-000004"
    ):
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
@pytest.mark.filterwarnings(  # TensorBoard's thread dies of it, which is not Regard's fault
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
        for thread in threading.enumerate():  # TensorBoard's threads: wait, so that no later test reports their errors
            if type(thread).__name__ == "_AsyncWriterThread":
                thread.join(10)
        gc.collect()


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_as_many_are_kept_as_asked_and_the_best(tmp_path, keep):
    train(Scripted([1, 9, 2, 2, 2, 2]), training(steps=24, keep=keep), tmp_path)
    expected = {f"step-{step:06d}" for step in [8, *range(24, 24 - 4 * keep, -4)]}
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == expected | {"best", "best.json", "last"}


def test_a_checkpoint_of_another_task_is_refused(tmp_path):
    task = Line()
    task.fingerprint = lambda: {"data": "a"}
    train(task, training(), tmp_path)
    task.fingerprint = lambda: {"data": "b"}
    with pytest.raises(CheckpointError, match='step-000008: made with data "a", but this run has "b"'):
        train(task, training(steps=9), tmp_path, resume=True)


def test_a_moving_average_is_measured_and_saved_and_the_raw_weights_go_on(tmp_path):
    class Noting(Line):
        def validate(self):
            self.measured = weights(self)
            return super().validate()

    task = Noting()
    train(task, training(ema=0.3, steps=4), tmp_path)
    # Compute the average with a plain loop over the weights of a run without one.
    plain = Line()
    trainer = stepped(training(), plain, tmp_path / "b", 0)
    mean = weights(plain)
    with trainer.shares() as shares:
        for step in range(1, 5):
            trainer.update(shares)
            decay = min(0.3, (1 + step) / (10 + step))
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
    # A resume continues from the last step, not from the mean, but must beat the mean.
    longer = train(Scripted([3.5, 1.0]), training(steps=16, keep=3, average=3), tmp_path, resume=True)
    assert longer.best == (4 if better else 3.5)
    assert Checkpoints(tmp_path).linked("best") == ("average" if better else "step-000016")
    if better:
        assert same_tensors(read_checkpoint(folder / "average", trainer=False).model, mean)


def test_one_checkpoint_has_no_mean(tmp_path):
    train(Line(), training(steps=4, average=2), tmp_path)
    assert not (tmp_path / "checkpoints/average").exists()
