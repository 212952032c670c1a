"""Two processes, as under torchrun: the losses of one process, also out of memory, sharded, stopped and resumed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from child import fork_ranks
from tiny import Fit, Line, free_port, records, same_tensors, table, training

from regard.errors import TrainingError
from regard.tasks import start
from regard.training.checkpoint import Checkpoints, read_checkpoint
from regard.training.distributed import Group, gather_full, gradient_buckets, shard_like
from regard.training.loop import train


def rank() -> int:
    """Return the rank of this process."""
    return int(os.environ.get("RANK", "0"))


class CrampedSecond(Fit):
    """An objective that runs out of memory in the second process beyond three rows."""

    def forward(self, batch):
        if rank() == 1 and len(batch[0]) > 3 and self.training:
            raise torch.OutOfMemoryError("no room")
        return super().forward(batch)


class Stopping(Line):
    """A task that sends a signal to the second process alone, in its third update."""

    number = 0

    def batch(self, plan, position):
        self.number += 1
        if rank() == 1 and self.number == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return plan


def sharded_table(folder: Path, **changes):
    given = table(folder, **{"training__steps": 6, "training__validate_every": 3, "training__ema": 0.9, **changes})
    given["model"]["dropout"] = 0.0
    return given


def work(folder: Path, jobs: list[str]) -> None:
    """Run the jobs of one of the two processes."""
    import torch.distributed as dist

    dist.init_process_group("gloo")  # once for all jobs
    if "line" in jobs:
        train(Line(), training(), folder / "line")
    if "cramped" in jobs:
        task = Line()
        torch.manual_seed(3)
        task.objective = CrampedSecond()
        train(task, training(), folder / "cramped")
    if "stopped" in jobs:
        assert train(Stopping(), training(), folder / "stopped").stop_reason == "signal"
        train(Line(), training(), folder / "stopped", resume=True)
    if "translate" in jobs:
        start(sharded_table(folder / "data"), folder / "translate")
    if "shard" in jobs:
        start(sharded_table(folder / "data", training__shard=True), folder / "shard")
    if "reshard" in jobs:
        start(sharded_table(folder / "data", training__shard=True, training__steps=3), folder / "reshard")
        start(sharded_table(folder / "data", training__shard=True), folder / "reshard", resume=True)
        start(sharded_table(folder / "data", training__shard=True, training__steps=3), folder / "unshard")
    if "broken" in jobs:
        given = sharded_table(folder / "data")
        given["data"]["source"] += ".none"
        with pytest.raises(TrainingError, match="no such file") if rank() else pytest.raises(TrainingError):
            start(given, folder / "broken")
    dist.barrier()  # the store ends with the first process that leaves
    dist.destroy_process_group()


def two(folder: Path, *jobs: str) -> None:
    """Run the jobs in two processes."""
    sharded_table(folder / "data")  # the files exist before two processes look for them
    first, second = fork_ranks(lambda: work(folder, list(jobs)))
    assert (first.status, second.status) == (0, 0), first.stderr + second.stderr


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Start two processes once for all quick tests."""
    folder = tmp_path_factory.mktemp("two")
    two(folder, "line", "cramped", "stopped", "translate", "shard")
    return folder


def close(one: Path, other: Path, tolerance: float) -> None:
    mine, its = read_checkpoint(Checkpoints(one).last()), read_checkpoint(Checkpoints(other).last())
    assert mine.step == its.step
    for kind in ("model", "trainer"):
        tensors = getattr(its, kind)
        assert getattr(mine, kind).keys() == tensors.keys()
        for name, tensor in getattr(mine, kind).items():
            second = mine.trainer.get(f"optimiser.exp_avg_sq.{name.removeprefix('raw.')}")
            # A bias of keys does not change attention: its gradient is rounding error, which Adam scales up in full.
            real = torch.ones_like(tensor, dtype=torch.bool) if second is None else second.sqrt() > 1e-6
            torch.testing.assert_close(
                tensor[real],
                tensors[name][real],
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, n=name: f"{n}: {text}",
            )


def test_two_processes_are_one_with_twice_the_batches(done, tmp_path):
    train(Line(), training(accumulate=2), tmp_path)
    mine, its = read_checkpoint(Checkpoints(tmp_path).last()), read_checkpoint(Checkpoints(done / "line").last())
    assert same_tensors(mine.model, its.model)  # the sum of two numbers has one order
    assert same_tensors(mine.trainer, its.trainer)
    for one, two_ in zip(records(tmp_path), records(done / "line"), strict=True):
        assert one.keys() == two_.keys()
        assert one["loss"] == pytest.approx(two_["loss"], rel=1e-6)


def test_one_runs_out_of_memory_and_the_other_waits(done):
    close(done / "line", done / "cramped", 1e-6)


def test_a_signal_to_one_stops_both(done, tmp_path):
    train(Line(), training(accumulate=2), tmp_path)
    close(done / "stopped", tmp_path, 0)
    # The run stopped at step 3, and the next checkpoint replaced that of step 3.
    assert [record["step"] for record in records(done / "stopped")] == [record["step"] for record in records(tmp_path)]


def test_a_translation_run_is_that_of_one_process(done, tmp_path):
    start(sharded_table(tmp_path, training__accumulate=2), tmp_path / "one")
    close(tmp_path / "one", done / "translate", 1e-5)
    for one, two_ in zip(records(tmp_path / "one"), records(done / "translate"), strict=True):
        assert one["loss"] == pytest.approx(two_["loss"], rel=1e-5)


def test_sharded_is_unsharded_and_loads_in_one_process(done):
    from regard.run import load

    close(done / "translate", done / "shard", 1e-5)
    for one, two_ in zip(records(done / "translate"), records(done / "shard"), strict=True):
        assert one["loss"] == pytest.approx(two_["loss"], rel=1e-5)  # of the moving average, at validations
        assert one.get("samples") == two_.get("samples")
    one, two_ = load(done / "translate"), load(done / "shard")
    assert one.translate(["1 2 3", "4"]) == two_.translate(["1 2 3", "4"])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_sharded_resumes(tmp_path):
    two(tmp_path, "translate", "reshard", "broken")
    close(tmp_path / "translate", tmp_path / "reshard", 1e-5)
    # One process resumes what two processes sharded.
    start(sharded_table(tmp_path / "data", training__accumulate=2), tmp_path / "unshard", resume=True)
    close(tmp_path / "translate", tmp_path / "unshard", 1e-5)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_under_torchrun(tmp_path):
    """Run the command as in the documentation."""
    import tomli_w

    given = sharded_table(tmp_path)
    (tmp_path / "c.toml").write_text(tomli_w.dumps(given))
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    command += ["-m", "regard", "train", str(tmp_path / "c.toml"), "--out", str(tmp_path / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    shown = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, timeout=300)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr.count("finished after 6 steps") == 1
    assert read_checkpoint(Checkpoints(tmp_path / "run").last()).step == 6


# ---- one process, without a group


def test_alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    group = Group("cpu", shard=True)
    assert (group.rank, group.world, group.first, group.shard) == (0, 1, True, False)
    assert group.any(True)
    assert not group.any(False)
    assert group.same({"a": 1}) == {"a": 1}
    x = torch.ones(2)
    assert group.sum(x) is x
    assert gather_full(x) is x
    assert shard_like(x, torch.zeros(2)) is x
    group.wait()
    group.leave()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_device_that_is_not_there():
    with pytest.raises(TrainingError, match=r"training.device: cuda given, but torch finds no CUDA device"):
        Group("cuda")


def test_gradients_travel_in_batches_of_one_type(monkeypatch):
    monkeypatch.setattr("regard.training.distributed.BUCKET_BYTES", 40)
    tensors = [torch.zeros(n) for n in (3, 7, 1, 20, 2)] + [torch.zeros(2).double(), torch.zeros(1).double()]
    cut = list(gradient_buckets(tensors))
    assert [id(tensor) for batch in cut for tensor in batch] == [id(tensor) for tensor in tensors]
    assert all(len({tensor.dtype for tensor in batch}) == 1 for batch in cut)
    assert [len(batch) for batch in cut] == [2, 2, 1, 2]
