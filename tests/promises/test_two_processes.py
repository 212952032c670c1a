"""If two trainings use one folder, one trains, and the other ends with one sentence.

The tests step two processes through their start call by call, in many orders: whichever call one of them has reached
when the other continues, the result is one run or none, and nothing incomplete.
"""

import itertools
import os
import random
import shutil
from pathlib import Path

import portalocker
import pytest
import torch
from forked import ended, forked
from tiny import table

from regard.run import load
from regard.tasks import start
from regard.training import Checkpoints, metrics
from regard.training.metrics import Trackers

CALLS = ("mkdir", "rmdir", "open", "unlink", "rename", "replace", "listdir", "scandir", "stat", "fsync")
BUSY = "another process is training into it; wait for it, or give another --out"
HELD = "already holds a run (step-000001); resume it with --resume"


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """Use one thread, as a forked process has no others, and no TensorBoard, which would start one."""
    monkeypatch.setattr(metrics, "open_trackers", lambda names, folder, resume_step: Trackers({}))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Led:
    """A training in a child process that waits for permission before every call on the folder."""

    def __init__(self, given: dict, out: Path):
        (arrived, arrive), (leave, left), (told, tell) = os.pipe(), os.pipe(), os.pipe()
        self.arrived, self.left, self.told = arrived, left, told

        def wait():
            os.write(arrive, b".")
            os.read(leave, 1)

        def work():
            for each in (arrived, left, told):
                os.close(each)
            for module, name in [*((os, name) for name in CALLS), (portalocker, "lock")]:
                setattr(module, name, waiting(getattr(module, name), wait, str(out)))
            said = ended(lambda: start(given, out))
            os.write(tell, said.encode() or b"trained")
            os._exit(0)

        self.child = forked(work)
        for each in (arrive, leave, tell):
            os.close(each)
        self.calls = 0
        self.runs = bool(os.read(self.arrived, 1))

    def go(self, calls: int) -> None:
        """Allow so many calls, or all that remain."""
        for _ in range(calls):
            if not self.runs:
                return
            os.write(self.left, b".")
            self.calls += 1
            self.runs = bool(os.read(self.arrived, 1))

    def end(self) -> str:
        """Let the process finish, and return its message."""
        self.go(10**6)
        said = os.read(self.told, 10**6).decode()
        assert os.waitpid(self.child, 0)[1] == 0
        for each in (self.arrived, self.left, self.told):
            os.close(each)
        return said


def waiting(real, wait, out: str):
    """Wrap a function so that it waits before each call on the folder or its contents."""

    def act(*given, **options):
        first = given[0] if given else "."
        name = first.name if hasattr(first, "fileno") else first
        if isinstance(name, int) or str(name).startswith(out) or out.startswith(f"{name}/"):
            wait()
        return real(*given, **options)

    return act


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Create data and their cache, so that a start is short."""
    home = tmp_path_factory.mktemp("home")
    start(table(home, training__steps=1), home / "first")
    return home


@pytest.fixture(scope="module")
def length(home) -> int:
    """Return the number of calls of a start without another process."""
    only = Led(table(home, training__steps=1), home / "alone")
    assert only.end() == "trained"
    assert only.calls > 30
    return only.calls


def orders(length: int, how: str) -> list[tuple[int, int]]:
    """Return pairs of the first process's calls and the second's calls before the first finishes."""
    if how == "some":
        early = [(random.randrange(12), random.randrange(12)) for _ in range(5)]
        return [*early, (random.randrange(length), 10**6)]
    every = [(calls, 10**6) for calls in range(length + 1)]
    return [*every, *itertools.product(range(20), range(20))]


HOW = pytest.mark.parametrize("how", ["some", pytest.param("all", marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])


def both(one: dict, other: dict, out: Path, order: tuple[int, int]) -> tuple[str, str]:
    first, second = Led(one, out), Led(other, out)
    first.go(order[0])
    second.go(order[1])
    return first.end(), second.end()


@HOW
def test_one_trains_and_the_other_is_told(home, tmp_path, length, how):
    for order in orders(length, how):
        out = tmp_path / "runs" / "run"
        said = both(table(home, training__steps=1), table(home, training__steps=1), out, order)
        assert sorted(each == "trained" for each in said) == [False, True], (order, said)
        refused = next(each for each in said if each != "trained")
        assert refused.startswith(f"{out}: "), (order, refused)
        assert BUSY in refused or HELD in refused, (order, refused)
        assert load(out).step == 1
        assert not list(out.rglob(".*"))
        shutil.rmtree(tmp_path / "runs")


@HOW
def test_one_that_cannot_begin_does_not_harm_the_other(home, tmp_path, length, how):
    """The failing process removes the folder that it made while the other is about to use it."""
    bad = table(home, training__steps=1)
    bad["data"]["source"] = str(home / "none.txt")
    for number, order in enumerate(orders(length, how)):
        out = tmp_path / "runs" / "run"
        given = [bad, table(home, training__steps=1)]
        one, other = both(*(given if number % 2 else given[::-1]), out, order)
        failed, trained = (one, other) if number % 2 else (other, one)
        assert "none.txt" in failed or BUSY in failed or HELD in failed, (order, failed)
        if trained == "trained":
            assert load(out).step == 1
            assert not list(out.rglob(".*"))
        else:
            assert BUSY in trained, (order, trained)
            assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir()), order
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)


def test_a_finished_run_is_not_written_over(home, tmp_path, length):
    """The first process checks the folder under its lock, so a run that the second finished stays as it is."""
    out = tmp_path / "run"
    first, second = (Led(table(home, training__steps=1), out) for _ in range(2))
    first.go(3)
    assert second.end() == "trained"
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert HELD in first.end()
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert Checkpoints(out).last().name == "step-000001"
