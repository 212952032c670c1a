"""Resume is exact: a run that was stopped and resumed equals a run without a stop, bit by bit.

Dropout, BPE dropout, accumulation and a moving average are on. The run stops in the middle of an epoch, at a step that
is neither recorded nor validated.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
from tiny import MODELS, records, same_tensors, table

from regard.tasks import start, translate
from regard.training import Checkpoints, read_checkpoint, read_manifest

STEPS, STOP = 16, 8  # the stop is in the middle, between two of all periodic events
EVERYTHING = {
    "training__steps": STEPS,
    "training__log_every": 3,
    "training__validate_every": 5,
    "training__accumulate": 2,
    "training__ema": 0.99,
    "training__patience": 3,
    "training__weight_decay": 0.01,
    "training__keep": 3,
    "training__average": 2,
    "training__metric": "chrf",
    "tokenizer": {"kind": "bpe", "size": 300, "dropout": 0.2},
}


@pytest.fixture
def batches(monkeypatch):
    """Record the training batches in order; a test can set a step at which a signal arrives."""
    seen = Seen()
    real = translate.Translate.move

    def move(self, batch, device):
        seen.append((batch.source.tolist(), batch.target.tolist()))
        if seen.stop_at and len(seen) == 2 * seen.stop_at - 1:  # the first of that step's two batches
            os.kill(os.getpid(), seen.number)
        return real(self, batch, device)

    monkeypatch.setattr(translate.Translate, "move", move)
    return seen


class Seen(list):
    stop_at: int | None = None
    number = signal.SIGTERM


def compare(one: Path, other: Path) -> None:
    """Compare all tensors, counters and records of two runs."""
    names = [path.name for path in Checkpoints(one).steps()]
    assert [path.name for path in Checkpoints(other).steps()] == names
    for name in [*names, "average"]:
        mine, its = (read_checkpoint(run / "checkpoints" / name) for run in (one, other))
        assert same_tensors(mine.model, its.model), name
        assert same_tensors(mine.trainer, its.trainer), name
        assert counters(mine.manifest) == counters(its.manifest), name
    assert records(one) == records(other)
    for link in ("best", "last"):
        assert Checkpoints(one).linked(link) == Checkpoints(other).linked(link)


def counters(manifest: dict) -> dict:
    found = dict(manifest["counters"])
    found.pop("seconds")
    found["sums"] = {key: value for key, value in found["sums"].items() if key != "since"}
    return found


@pytest.mark.parametrize("kind", ["transformer", "rnnsearch", pytest.param("luong", marks=pytest.mark.slow)])
def test_stopped_and_resumed(tmp_path, kind, batches):
    given = table(tmp_path, kind, **EVERYTHING)
    given["model"]["dropout"] = 0.3
    start(given, tmp_path / "whole")
    whole = list(batches)
    batches.clear()
    batches.stop_at = STOP
    stopped = start(given, tmp_path / "cut").result
    assert (stopped.step, stopped.stop_reason) == (STOP, "signal")
    batches.stop_at = None
    position = read_manifest(Checkpoints(tmp_path / "cut").last())["counters"]["position"]
    assert position[1] > 0, "it should have stopped in the middle of an epoch"
    if kind != "transformer":  # encoded corpora are only a cache: the run's tokenizer makes equal ones
        shutil.rmtree(tmp_path / "cache")
    finished = start(given, tmp_path / "cut", resume=True).result
    assert (finished.step, finished.stop_reason) == (STEPS, "finished")
    assert list(batches) == whole  # the same sentences, split into the same pieces, in the same order
    assert len(whole) == 2 * STEPS
    ended = read_manifest(Checkpoints(tmp_path / "cut").last())["counters"]["position"]
    assert ended[0] > 0, "it should have gone over the end of an epoch"
    compare(tmp_path / "whole", tmp_path / "cut")


def test_many_stops(tmp_path, batches):
    """Stop after every single step."""
    given = table(tmp_path, **{**EVERYTHING, "training__steps": 5, "training__validate_every": 3})
    given["model"]["dropout"] = 0.3
    start(given, tmp_path / "whole")
    batches.stop_at = 1
    for step in range(1, 5):
        batches.clear()
        assert start(given, tmp_path / "cut", resume=step > 1).result.step == step
    batches.stop_at = None
    start(given, tmp_path / "cut", resume=True)
    compare(tmp_path / "whole", tmp_path / "cut")  # also the mean: of the same checkpoints, without those of the stops


# ---- through the command line


def regard(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen:
    command = [sys.executable, "-m", "regard", *arguments]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quiet)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ["transformer", "rnnsearch"])
def test_through_the_command_line(tmp_path, kind, number):
    """The second process knows only the run folder."""
    steps = {"training__steps": 600, "training__validate_every": 100, "training__patience": 0, "training__keep": 1}
    given = table(tmp_path, kind, **{**EVERYTHING, **steps, "training__average": 0})
    given["model"] = {**MODELS[kind], "dropout": 0.3}
    config = tmp_path / "config.toml"
    config.write_text(tomli_w.dumps(given))
    whole = regard("train", str(config), "--out", str(tmp_path / "whole"))
    cut = regard("train", str(config), "--out", str(tmp_path / "cut"))
    metrics = tmp_path / "cut/metrics.jsonl"
    until = time.monotonic() + 120
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 20:
        assert cut.poll() is None, cut.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    cut.send_signal(number)
    _, said = cut.communicate(timeout=120)
    assert cut.returncode == 128 + number
    assert f"  regard train --resume {tmp_path / 'cut'}" in said
    stopped = read_checkpoint(Checkpoints(tmp_path / "cut").last())
    assert 57 <= stopped.step < 600
    again = regard("train", "--resume", str(tmp_path / "cut"))
    assert again.wait(300) == 0, again.communicate()
    assert whole.wait(300) == 0, whole.communicate()
    for each in (again, whole):
        each.communicate()
    mine, its = (read_checkpoint(tmp_path / run / "checkpoints/step-000600") for run in ("whole", "cut"))
    assert same_tensors(mine.model, its.model)
    assert same_tensors(mine.trainer, its.trainer)
    assert records(tmp_path / "whole") == records(tmp_path / "cut")
    assert json.dumps(counters(mine.manifest)) == json.dumps(counters(its.manifest))
