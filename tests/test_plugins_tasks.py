"""Regard's own kinds of model serve a task that a plugin adds, if their inputs and outputs match."""

import json
from dataclasses import replace

import pytest
import tomli_w
from cli.typing_in import Command
from plugin_rows import forget_plugins
from tiny import caption_table, document_table, question_table, table

from regard import plugins
from regard.errors import ConfigError
from regard.run import load
from regard.tasks import TASKS, read_settings

# typer's own classes differ from the documented ones
pytestmark = [pytest.mark.unchecked, pytest.mark.usefixtures("without_report")]
CODE = """
from dataclasses import replace

import regard
from regard.tasks.table import TASKS


def own(task):
    class Own(TASKS[task].load()):
        def facts(self):
            return [*super().facts(), ("mine", "a task of one's own")]

    name = Own.__name__ = task.title().replace("-", "")
    globals()[name] = Own
    regard.register(task=replace(TASKS[task], name=f"own-{task}", file=f"{__name__}.{name}"))


for task in list(TASKS):
    own(task)
"""
LANGUAGE_MODELS = {
    "encoder": {"kind": "encoder", "size": 8, "heads": 2, "layers": 1, "hidden": 8},
    "lstmn": {"kind": "lstmn", "size": 8, "embedding": 8, "hidden": 8},
}
TABLES = {
    ("translate", "rnn"): lambda home: table(home, "rnn"),
    ("language-model", "encoder"): lambda home: table(home, model=LANGUAGE_MODELS["encoder"]),
    ("language-model", "lstmn"): lambda home: table(home, model=LANGUAGE_MODELS["lstmn"]),
    ("caption", "captioner"): caption_table,
    ("classify", "encoder"): lambda home: document_table(home, "encoder"),
    ("classify", "lstmn"): lambda home: document_table(home, "lstmn"),
    ("classify", "convnet"): question_table,
}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Provide a folder with the plugin; forget its registrations afterwards."""
    (tmp_path / "mine.py").write_text(CODE)
    with forget_plugins(tmp_path, monkeypatch):
        yield tmp_path


@pytest.mark.parametrize(("task", "kind"), TABLES)
def test_a_task_of_ones_own_trains_a_kind_of_regards(desk, task, kind):
    whole = TABLES[task, kind](desk) | {"task": f"own-{task}"}
    whole["training"] |= {"steps": 2, "validate_every": 2}
    (desk / "c.toml").write_text(tomli_w.dumps(whole))
    shown = Command("train").typed("c.toml", "--out", "run", "--plugin", "mine.py")
    assert shown.exit_code == 0, shown.output
    assert "a task of one's own" in (desk / "run" / "log.txt").read_text()
    run = load("run")
    assert (run.settings.task, run.settings.kind, run.settings.plugins) == (f"own-{task}", kind, ("mine.py",))
    assert getattr(run.settings.model, "job", task) == task
    manifest = json.loads((desk / "run" / "checkpoints" / "step-000002" / "manifest.json").read_text())
    assert (manifest["task"]["task"], manifest["task"]["plugins"]) == (f"own-{task}", ["mine.py"])


def test_a_kind_that_does_something_else_is_refused(desk):
    plugins.load("mine.py")
    for task, kind, expected in (
        ("own-translate", "encoder", "expected one of rnn, rnnsearch, "),
        ("own-classify", "rnn", "expected one of encoder, lstmn, "),
        ("own-language-model", "transformer", "expected one of encoder, lstmn"),
    ):
        with pytest.raises(ConfigError, match=f'"{kind}" given with task = "{task}".*{expected}'):
            read_settings({"task": task, "model": {"kind": kind}})
    with pytest.raises(ConfigError, match='model.job: "classify" given with task = "own-language-model", expected'):
        read_settings({"task": "own-language-model", "model": {"kind": "encoder", "job": "classify"}})


def test_a_row_whose_usual_kind_is_none_or_does_not_serve_it_is_refused(desk, monkeypatch):
    for kind, problem in (
        ("no-such", 'model.kind: "no-such" given, no such kind'),
        ("encoder", '"encoder" given with'),
    ):
        monkeypatch.setitem(TASKS, "mine", replace(TASKS["translate"], name="mine", kinds={"text": kind}))
        with pytest.raises(ConfigError, match=problem):
            read_settings({"task": "mine"})
