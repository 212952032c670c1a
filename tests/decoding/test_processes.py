"""Two processes that share work: both get the results in order, and one learns of the other's failure."""

import json
import os
import signal
from pathlib import Path

import pytest
from child import fork_ranks

from regard.decoding.translate_file import Processes
from regard.errors import ArgumentError, CommandError, RegardError


def work(folder: Path) -> None:
    """Run the work of each process; the second finally dies in the middle of its work."""

    def square(number: int) -> tuple[int, str]:
        return number**2, f"by {os.environ['RANK']} – ☃"

    def fail(number: int) -> int:
        if number == 3:
            raise ArgumentError("number: 3 given, which nobody likes")
        return number

    def die(number: int) -> int:
        if number == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with Processes() as processes:
        told = {"first": processes.first, "squares": [list(processes.share(range(n), square)) for n in (0, 1, 5, 6)]}
        for name, job in (("failure", fail), ("death", die)):
            done = []
            try:
                done.extend(processes.share(range(8), job))
            except RegardError as error:
                told[name] = [type(error).__name__, str(error), done]
            (folder / f"{processes.rank}.json").write_text(json.dumps(told))


def test_two_processes(tmp_path):
    ranks = fork_ranks(lambda: work(tmp_path))
    assert [rank.status for rank in ranks] == [0, -signal.SIGKILL], ranks
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert (first.pop("first"), second.pop("first")) == (True, False)
    expected = [[[i**2, f"by {i % 2} – ☃"] for i in range(n)] for n in (0, 1, 5, 6)]
    assert first["squares"] == second["squares"] == expected
    problem = "number: 3 given, which nobody likes"
    assert second["failure"] == ["ArgumentError", problem, [0, 1]]
    assert first["failure"] == ["CommandError", f"stopped, because process 1 failed: {problem}", [0, 1]]
    assert first["death"][0] == "CommandError"
    assert first["death"][1].startswith("stopped, because another process is gone: ")
    assert first["death"][2] == [0, 1, 2, 3]


def test_alone_is_lazy(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    read = []

    def numbers():
        for i in range(9):
            read.append(i)
            yield i

    with Processes() as processes:
        assert processes.first
        shared = processes.share(numbers(), lambda number: number + 1)
        assert next(shared) == 1
        assert read == [0]
        assert list(shared) == list(range(2, 10))


def test_processes_that_nobody_started(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(CommandError, match="process 0 of 2 given, but they cannot connect .* start them with torchrun"):
        Processes().__enter__()


@pytest.mark.parametrize(
    ("name", "count", "local", "found"),
    [
        ("auto", 0, 0, "cpu"),
        ("auto", 2, 1, "cuda:1"),
        ("cuda", 2, 3, "cuda:1"),
        ("cuda:1", 2, 0, "cuda:1"),
        ("cpu", 2, 1, "cpu"),
    ],
)
def test_each_process_has_a_device(monkeypatch, name, count, local, found):
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.setenv("LOCAL_RANK", str(local))
    assert Processes().device(name) == found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cuda", "cuda given, but torch finds no CUDA device"),
        ("cuda:x", "'cuda:x' given, expected auto, cpu, mps, cuda, or cuda:1 and so on"),
        ("cpu:1", "'cpu:1' given"),
        ("", "'' given"),
    ],
)
def test_devices_that_are_none(monkeypatch, name, said):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(CommandError, match=f"--device: {said}"):
        Processes().device(name)


def test_a_device_beyond_the_last(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(CommandError, match="--device: cuda:2 given, but there are 2 CUDA devices, counted from 0"):
        Processes().device("cuda:2")
