"""A command that a signal stops saves its work, and its exit status shows a script that it was stopped."""

import os
import signal
import subprocess
import sys
import time

import pytest
import tomli_w
from child import regard
from tiny import free_port, table

from regard.training import Checkpoints, read_checkpoint

# Handle interrupts even if the tests run in the background of a script.
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from regard.cli.program import main
"""
SMALL = """
from regard_corpora import demo
demo.PAIRS = 400
"""
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
if hasattr(signal, "SIGHUP"):
    STATUS[signal.SIGHUP] = 129
else:
    pytest.skip("signals of POSIX", allow_module_level=True)


def started(folder, *words, program=("-c", f"{MAIN}main()"), **environment):
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "REGARD_CACHE": str(folder / "cache"), **environment}
    process = subprocess.Popen([sys.executable, *program, *words], stderr=subprocess.PIPE, text=True, env=quiet)
    STARTED.append(process)
    return process


STARTED = list[subprocess.Popen]()


@pytest.fixture(autouse=True)
def _ended():
    """Kill every process that outlives its test."""
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.communicate()


def stopped(process, run, number, seconds=120):
    """Send a signal to a process once it trains, and return its status and messages."""
    until = time.monotonic() + seconds
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").read_text().count("\n"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=seconds)
    return process.returncode, said


def configuration(folder, **training):
    given = table(folder, training__steps=1_000_000, training__validate_every=500_000, training__log_every=10)
    given["training"] |= training
    (folder / "c.toml").write_text(tomli_w.dumps(given))
    return str(folder / "c.toml")


SLOW = pytest.mark.slow
QUICK = [signal.SIGTERM, pytest.param(signal.SIGINT, marks=SLOW), pytest.param(signal.SIGHUP, marks=SLOW)]


@pytest.mark.parametrize("number", QUICK)
def test_train_saves_and_ends_with_the_signals_status(tmp_path, number):
    run = tmp_path / "a run"
    process = started(tmp_path, "train", configuration(tmp_path), "--out", str(run))
    status, said = stopped(process, run, number)
    assert status == STATUS[number], said
    assert f"{signal.Signals(number).name}: saving after this step" in said
    assert f"regard train --resume '{run}'" in said  # quoted for pasting
    assert (run / "report.html").exists()
    assert read_checkpoint(Checkpoints(run).last()).step > 0


@pytest.mark.parametrize(("number", "corpus"), [(signal.SIGINT, SMALL), pytest.param(signal.SIGTERM, "", marks=SLOW)])
def test_the_demonstration_too(tmp_path, number, corpus):
    run = tmp_path / "demo"
    process = started(tmp_path, "demo", "--out", str(run), program=("-c", f"{MAIN}{corpus}main()"))
    status, said = stopped(process, run, number)
    assert status == STATUS[number], said
    assert f"regard train --resume {run}" in said
    assert read_checkpoint(Checkpoints(run).last()).step > 0


@pytest.mark.parametrize(
    ("training", "end"),
    [
        ({"minutes": 1 / 60}, "because the time limit was reached"),
        pytest.param(
            {"patience": 1, "validate_every": 1, "rate": 1e-30}, "because validation did not improve", marks=SLOW
        ),
        pytest.param({"steps": 3}, "finished after 3 steps", marks=SLOW),
    ],
)
def test_an_end_of_its_own_is_a_success(tmp_path, training, end):
    ended = regard("train", configuration(tmp_path, **training), "--out", tmp_path / "run")
    assert (ended.status, end in ended.stderr) == (0, True), ended.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_under_torchrun_it_is_a_success(tmp_path):
    """With another status torchrun would restart the workers, and the signal would stop nothing."""
    run = tmp_path / "run"
    launch = (
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
        "--max-restarts",
        "1",
    )
    process = started(tmp_path, "-m", "regard", "train", configuration(tmp_path), "--out", str(run), program=launch)
    until = time.monotonic() + 200
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").read_text().count("\n"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.1)
    workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(workers[0]), signal.SIGTERM)  # one of them: all stop after the same step
    _, said = process.communicate(timeout=100)
    assert process.returncode == 0, said
    assert said.count("saved at step") == 1
    assert read_checkpoint(Checkpoints(run).last()).step > 0
