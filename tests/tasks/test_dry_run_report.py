"""A dry run: the largest batches first, and figures that are those of the training itself."""

import itertools
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import tomli_w
import torch
from forked import fork_for_spawn
from tiny import table

from regard.data import Position
from regard.errors import TrainingError
from regard.report import report
from regard.tasks.dry_run_report import (
    LARGEST,
    Stopwatch,
    batch_size,
    dry_run,
    measure_apart,
    put_largest_first,
    trained_share,
)
from regard.tasks.run_start import open_group, plan_run
from regard.tasks.settings import read_settings
from regard.training import Progress


def planned(folder, **changes):
    settings = read_settings(table(folder, **changes))
    with open_group(settings.training) as group:
        return plan_run(settings, group, Progress())


def test_the_largest_batches_come_first(tmp_path):
    task = planned(tmp_path, training__batch_tokens=48).task
    epoch = [plan for _, plan in itertools.takewhile(lambda each: each[0].epoch == 0, task.stream(Position()))]
    mean, sizes = put_largest_first(task)
    first = [plan for _, plan in itertools.islice(task.stream(Position()), LARGEST + 5)]
    largest = sorted((batch_size(task, plan) for plan in epoch), reverse=True)
    assert [batch_size(task, plan) for plan in first[: LARGEST - 1]] == largest[: LARGEST - 1]
    longest = max(int(task.prepared.train.lengths[plan].max()) for plan in epoch)
    assert int(task.prepared.train.lengths[first[LARGEST - 1]].max()) == longest
    assert all((one == other).all() for one, other in zip(first[LARGEST:], epoch[:5], strict=True))
    assert mean == pytest.approx(sum(largest) / len(largest))
    assert sizes[:LARGEST] == [batch_size(task, plan) for plan in first[:LARGEST]]


def test_a_step_behind_a_validation_is_not_timed(monkeypatch):
    watch, clock = Stopwatch(torch.device("cpu")), iter(range(100))
    monkeypatch.setattr("regard.tasks.dry_run_report.time.monotonic", lambda: float(next(clock)))
    watch.begin("", [], None)
    for step in range(LARGEST + 4):
        watch.step({})
        if step == LARGEST + 1:
            next(clock)
            watch.valid({})
    assert watch.timed() == {LARGEST: 1.0, LARGEST + 1: 1.0, LARGEST + 3: 1.0}


def test_a_trained_model_writes_as_much_as_the_references(tmp_path):
    task = planned(tmp_path).task
    task.validation_samples = [SimpleNamespace(output="1 2 3 4 5 6 7", reference="1 2 3")] * 3  # and END
    assert trained_share(task) == 0.5
    task.validation_samples = []
    assert trained_share(task) == 1.0


def test_a_mistake_in_the_measured_steps_is_told(tmp_path, monkeypatch):
    fork_for_spawn(monkeypatch)  # test_steps_and_validations_are_counted starts a new one
    settings = read_settings(table(tmp_path, training__steps=4))
    with pytest.raises(TrainingError, match="no folder of this name has a checkpoint|not a run folder"):
        measure_apart(settings, tmp_path / "none", False, report)


PEAK = """
import os, subprocess, sys
_, status, usage = os.wait4(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL).pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it counts no memory")
def test_memory_and_time_are_those_of_the_training(tmp_path):
    """Within 15 % of the memory that a training takes, and within 25 % of its time; a machine may be busy meanwhile."""
    config = table(tmp_path, training__steps=400, training__validate_every=100, training__threads=1)
    (tmp_path / "config.toml").write_text(tomli_w.dumps(config))
    for attempt in range(4):
        estimate = dry_run(read_settings(config), Progress(), report)
        out = tmp_path / f"run-{attempt}"
        command = [sys.executable, "-m", "regard", "train", str(tmp_path / "config.toml"), "--out", str(out)]
        # Started by a small process: Linux counts what its parent held as a new one's peak.
        peak = int(subprocess.check_output([sys.executable, "-c", PEAK, *command], stderr=subprocess.DEVNULL))
        peak *= 1 if sys.platform == "darwin" else 1024
        assert estimate.measured.memory == pytest.approx(peak, rel=0.15)
        lines = (out / "metrics.jsonl").read_text().splitlines()
        steps = [record for record in map(json.loads, lines) if record["kind"] == "step"]
        first, last = steps[0], steps[-1]  # between them: a run's seconds begin when its data are read
        seconds = (last["seconds"] - first["seconds"]) * last["step"] / (last["step"] - first["step"])
        if estimate.seconds == pytest.approx(seconds, rel=0.25):
            return
    pytest.fail(f"{estimate.seconds:.2f} s estimated, {seconds:.2f} s taken, in the last of four attempts")


def test_steps_and_validations_are_counted(tmp_path):
    config = table(tmp_path, training__steps=130, training__validate_every=100)
    estimate = dry_run(read_settings(config), Progress(), report)
    assert (estimate.steps, estimate.validations) == (130, 2)
    assert dict(estimate.facts)["data"].startswith("190 pairs")
    measured = estimate.measured
    assert estimate.seconds == pytest.approx(130 * measured.step + 2 * measured.validation)
    assert list(tmp_path.glob("run*")) == []
