"""Trackers: rows of a table, opened only where they are asked for, and never the end of a training."""

import json
import subprocess
import sys

import pytest
from tiny import Line, records, training

from regard.errors import ConfigError, MissingExtraError
from regard.plugins import TABLES
from regard.training.loop import train
from regard.training.metrics import Metrics
from regard.training.trackers import TRACKERS, TrackerRow, check_trackers, keep_name, known_name, open_trackers

# A module with the calls of Weights & Biases that are used, which writes down what it is given.
WANDB = """
import json, pathlib
class Run:
    def __init__(self, **given):
        self.id, self.file = given["id"] or "new-id", pathlib.Path(given["dir"]) / "sent.jsonl"
        self.write(init=given)
    def write(self, **what):
        with self.file.open("a") as file: file.write(json.dumps(what) + "\\n")
    def log(self, figures, step): self.write(step=step, figures=figures)
    def finish(self): self.write(finish=True)
def init(**given): return Run(**given)
"""
# And the client of MLflow.
MLFLOW = """
import json, pathlib
from types import SimpleNamespace
class MlflowClient:
    def write(self, *what):
        with open("mlflow.jsonl", "a") as file: file.write(json.dumps(what) + "\\n")
    def get_experiment_by_name(self, name): return None
    def create_experiment(self, name): self.write("experiment", name); return "7"
    def create_run(self, number, run_name): return SimpleNamespace(info=SimpleNamespace(run_id=f"{number}-{run_name}"))
    def log_param(self, run, key, value): self.write("param", run, key, value)
    def log_metric(self, run, key, value, step): self.write("metric", run, key, value, step)
    def set_terminated(self, run): self.write("end", run)
"""


@pytest.fixture
def services(tmp_path, monkeypatch):
    """Modules of these names, in a folder of their own, and a current folder that is empty."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "wandb.py").write_text(WANDB)
    (tmp_path / "modules" / "mlflow.py").write_text(MLFLOW)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    for name in ("wandb", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    yield tmp_path
    for name in ("wandb", "mlflow"):
        sys.modules.pop(name, None)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_weights_and_biases_gets_the_records(services):
    run = services / "run"
    train(Line(), training(track=("wandb",)), run)
    (first, *sent, last) = lines(run / "sent.jsonl")
    assert (first["init"]["project"], first["init"]["name"], first["init"]["id"]) == ("regard", "run", None)
    assert last == {"finish": True}
    expected = [(each["kind"], each["step"], each["loss"]) for each in records(run)]
    losses = [
        (kind, each["step"], each["figures"][f"{kind}/loss"])
        for each in sent
        for kind in ("step", "valid")
        if f"{kind}/loss" in each["figures"]
    ]
    assert losses == expected


def test_a_resumed_run_is_continued_there(services):
    run = services / "run"
    train(Line(), training(track=("wandb", "mlflow")), run)
    train(Line(), training(track=("wandb", "mlflow"), steps=12), run, resume=True)
    begun = [each["init"] for each in lines(run / "sent.jsonl") if "init" in each]
    assert [(each["id"], each["resume"]) for each in begun] == [(None, None), ("new-id", "allow")]
    sent = lines(services / "mlflow.jsonl")
    assert [each[1] for each in sent if each[0] == "experiment"] == ["regard"]
    assert [each for each in sent if each[0] == "end"] == [["end", "7-run"]] * 2
    assert {each[4] for each in sent if each[0] == "metric"} == {2, 4, 6, 8, 10, 12}


def test_nothing_is_imported_that_nobody_asked_for(services):
    train(Line(), training(), services / "run")
    assert not {"wandb", "mlflow"} & set(sys.modules)


def test_a_missing_package_is_one_sentence(tmp_path):
    missing = TrackerRow("absent", lambda folder, step: None, "no_such_package", "absent")
    TABLES["tracker"]["absent"] = missing
    try:
        with pytest.raises(MissingExtraError, match=r"install it with: pip install 'regard\[absent\]'"):
            check_trackers(["absent"])
    finally:
        del TABLES["tracker"]["absent"]
    with pytest.raises(ConfigError, match=r"^training.track: \"wandbb\" given, no such tracker; did you mean 'wandb'"):
        check_trackers(["wandbb"])


class Unreliable:
    def __init__(self, folder, step):
        self.count = 0

    def log(self, step, figures):
        self.count += 1
        if self.count == 2:
            raise ConnectionError("no network")

    def close(self):
        raise AssertionError("it was left out")


def test_training_goes_on_without_one_that_fails(tmp_path, capsys):
    TABLES["tracker"]["unreliable"] = TrackerRow("unreliable", Unreliable)
    try:
        assert train(Line(), training(track=("unreliable",)), tmp_path / "run").step == 8
    finally:
        del TABLES["tracker"]["unreliable"]
    assert capsys.readouterr().err == "regard: unreliable: no network; no more curves are sent to it\n"


def test_a_plugin_adds_one(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import regard\nfrom regard.training.trackers import TrackerRow\n"
        "class Printed:\n"
        "    def __init__(self, folder, step): pass\n"
        "    def log(self, step, figures): print(step, sorted(figures))\n"
        "    def close(self): print('closed')\n"
        "regard.register(tracker=TrackerRow('printed', Printed))\n"
    )
    code = (
        "from pathlib import Path; from regard import plugins; plugins.load('mine.py')\n"
        "from regard.training.trackers import open_trackers\n"
        "found = open_trackers(['printed'], Path('.'), None); found.log(3, {'step/loss': 0.5}); found.close()\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == "3 ['step/loss']\nclosed\n"


def test_names_are_kept_with_the_run(tmp_path):
    assert known_name(tmp_path, "wandb", 3) is None
    keep_name(tmp_path, "wandb", "abc")
    keep_name(tmp_path, "mlflow", "def")
    assert (known_name(tmp_path, "wandb", 3), known_name(tmp_path, "mlflow", 3)) == ("abc", "def")
    assert known_name(tmp_path, "wandb", 0) is None  # a new run
    (tmp_path / "trackers.json").write_text("{")
    assert known_name(tmp_path, "wandb", 3) is None


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_the_package_itself(name, tmp_path, monkeypatch):
    """Offline, where the package is installed."""
    pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    (tmp_path / "run").mkdir()
    with Metrics(tmp_path / "run", None, [name]) as metrics:
        metrics.write("step", {"step": 3, "loss": 0.5})
    assert set(TRACKERS) >= {"tensorboard", "wandb", "mlflow"}
    assert known_name(tmp_path / "run", name, 3)


def test_tensorboard_is_written_without_asking(tmp_path):
    pytest.importorskip("tensorboard")
    found = open_trackers((), tmp_path, None)
    assert list(found.trackers) == ["tensorboard"]
    found.close()
