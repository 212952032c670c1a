"""A run's records, and its numbers in readable form."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugin_rows import forget_plugins
from tiny import Line, records, training

from regard import plugins
from regard.errors import ConfigError, MissingExtraError
from regard.plugins import TABLES
from regard.training.loop import train
from regard.training.metrics import (
    TRACKERS,
    Metrics,
    TrackerRow,
    check_trackers,
    format_clock,
    format_duration,
    format_value,
    keep_name,
    known_name,
    open_trackers,
    read_records,
)


def test_metrics_are_read_as_they_were_written(tmp_path):
    with Metrics(tmp_path / "metrics.jsonl") as metrics:
        metrics.write("step", {"step": 1, "loss": math.nan, "rate": 1e-4})
        assert len(read_records(tmp_path / "metrics.jsonl")) == 1  # at once, not at the end
        metrics.write("valid", {"step": 1, "bleu": 12.4, "best": True, "word": "ä"})
    assert read_records(tmp_path / "metrics.jsonl") == [
        {"kind": "step", "step": 1, "loss": None, "rate": 1e-4},
        {"kind": "valid", "step": 1, "bleu": 12.4, "best": True, "word": "ä"},
    ]
    assert read_records(tmp_path / "none.jsonl") == []


@given(torn=st.integers(0, 40), resume=st.none() | st.integers(0, 12))
def test_a_resume_leaves_no_step_twice(tmp_path_factory, torn, resume):
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    lines = [json.dumps({"kind": "step", "step": step}) + "\n" for step in range(1, 11)]
    path.write_text("".join(lines)[: -torn or None] if torn else "".join(lines))
    whole = path.read_text().count("\n")
    metrics = Metrics.__new__(Metrics)  # another test covers TensorBoard's writer
    metrics.path = path
    metrics._repair(resume)
    kept = [record["step"] for record in read_records(path)]
    assert kept == [step for step in range(1, 11) if step <= whole and (resume is None or step <= resume)]
    assert path.read_bytes()[-1:] in (b"", b"\n")
    assert [file.name for file in path.parent.iterdir()] == ["metrics.jsonl"]


def test_a_torn_line_in_the_middle_is_passed_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"ste\n[1]\n\xff\xfe\n\n{"step": 2}\n{"step"')
    assert [record["step"] for record in read_records(path)] == [1, 2]


def test_tensorboard_gets_the_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    with Metrics(tmp_path / "metrics.jsonl") as metrics:
        metrics.write("step", {"step": 1, "loss": 4.0})
        metrics.write("step", {"step": 2, "loss": 3.0, "best": True})
    with Metrics(tmp_path / "metrics.jsonl", resume_step=1) as metrics:
        metrics.write("step", {"step": 2, "loss": 2.0})
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert events.Tags()["scalars"] == ["step/loss"]
    assert [(event.step, event.value) for event in events.Scalars("step/loss")] == [(1, 4.0), (2, 2.0)]


def test_without_tensorboard_nothing_is_said(tmp_path):
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'tensorboard' else real(name, *more)\n"
        "from pathlib import Path; from regard.training.metrics import Metrics\n"
        f"Metrics(Path({str(tmp_path / 'metrics.jsonl')!r})).write('step', {{'step': 1}})\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert [path.name for path in Path(tmp_path).iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *[(0.2, "under 1 s"), (40, "40 s"), (89.4, "89 s"), (90, "2 min"), (3599, "1 h 00 min"), (11100, "3 h 05 min")],
        *[(86400 * 2.2, "2 d 5 h"), (math.nan, "–"), (math.inf, "–"), (-1.0, "–"), (86399, "1 d 0 h")],
    ],
)
def test_durations(seconds, said):
    assert format_duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0:00"),
        (0.9, "0:00"),
        (59.99, "0:59"),
        (725.0, "12:05"),
        (3600.0, "1:00:00"),
        (11110.0, "3:05:10"),
        (187201.0, "2 d 4:00:01"),
    ],
)
def test_a_clock_moves_every_second(seconds, text):
    assert format_clock(seconds) == text


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        *[("loss", 3.214, "3.21"), ("loss", 0.0214, "0.021"), ("bleu", 12.44, "12.4"), ("exact", 0.831, "83.1%")],
        *[("accuracy", 83.1, "83.1"), ("rate", 4.2e-4, "4.2e-4"), ("rate", 0.0, "0"), ("loss", math.nan, "NaN")],
        *[("x", -1.5, "−1.5"), ("n", 12345, "12,345"), ("x", None, "–"), ("loss", 1e30, "1e+30"), ("word", "w", "w")],
    ],
)
def test_numbers(key, value, said):
    assert format_value(key, value) == said


# ---- trackers: rows of a table, opened only on request, which never end a training


# A module with those calls of Weights & Biases that Regard uses; it records their arguments.
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
# The client of MLflow in the same form.
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
    """Put modules with these names into a folder on the path, and use an empty current folder."""
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


def test_a_plugin_adds_one(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "import regard\nfrom regard.training.metrics import TrackerRow\n"
        "class Printed:\n"
        "    def __init__(self, folder, step): pass\n"
        "    def log(self, step, figures): print(step, sorted(figures))\n"
        "    def close(self): print('closed')\n"
        "regard.register(tracker=TrackerRow('printed', Printed))\n"
    )
    with forget_plugins(tmp_path, monkeypatch):
        plugins.load("mine.py")
        found = open_trackers(["printed"], tmp_path, None)
        found.log(3, {"step/loss": 0.5})
        found.close()
    assert capsys.readouterr().out == "3 ['step/loss']\nclosed\n"


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
    """Use the installed package offline."""
    pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    (tmp_path / "run").mkdir()
    with Metrics(tmp_path / "run/metrics.jsonl", None, [name]) as metrics:
        metrics.write("step", {"step": 3, "loss": 0.5})
    assert set(TRACKERS) >= {"tensorboard", "wandb", "mlflow"}
    assert known_name(tmp_path / "run", name, 3)


def test_tensorboard_is_written_without_asking(tmp_path):
    pytest.importorskip("tensorboard")
    found = open_trackers((), tmp_path, None)
    assert list(found.trackers) == ["tensorboard"]
    found.close()
