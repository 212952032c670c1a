"""Plugins: the page's code adds rows that all of Regard knows, and only named plugins are imported."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from plugin_rows import forget_plugins

import regard
from regard import plugins
from regard.config import read
from regard.errors import ArgumentError, CommandError, ConfigError
from regard.evaluation import METRICS, text_scores
from regard.evaluation.metric import Metric
from regard.inspection import exhibit_of
from regard.models import KINDS, Kind
from regard.report import train
from regard.tasks import TASKS, read_settings

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "plugins.md"
FILE = re.compile(r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
TABLE = {
    "task": "noisy",
    "data": {"builtin": "mirrors", "count": 200, "held_out": 0.1},
    "tokenizer": {"kind": "word"},
    "model": {"kind": "near", "size": 16},
    "training": {"steps": 4, "batch_tokens": 256, "validate_every": 2, "metric": "length", "device": "cpu"},
}


def write_page(folder: Path) -> list[str]:
    """Write the page's files into a folder."""
    files = FILE.findall(PAGE.read_text(encoding="utf-8"))
    for name, code in files:
        (folder / name).write_text(code, encoding="utf-8")
    return [name for name, _ in files]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Write the page's files into the current folder; forget their registrations afterwards."""
    write_page(tmp_path)
    with forget_plugins(tmp_path, monkeypatch):
        yield tmp_path


def test_a_score_and_a_kind_take_at_most_sixty_lines():
    files = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))
    assert files.keys() == {"near.py", "mirrors.py", "noisy.py"}
    assert len(files["near.py"].splitlines()) <= 60


def test_what_the_page_adds_is_trained_loaded_searched_measured_and_looked_into(desk):
    plugins.load("near.py", "mirrors.py", "noisy.py")
    run = train(TABLE, "run")
    assert (run.settings.task, run.settings.kind, run.settings.training.metric) == ("noisy", "near", "length")
    assert run.settings.plugins == ("noisy.py", "near.py", "mirrors.py")
    assert (desk / "run" / "report.html").is_file()
    (found,) = run.stream(["a b c"], beam=3, alignment=True)
    alone = run.score(["a b c"], [found[0].text])[0].log_prob
    assert alone == pytest.approx(found[0].log_prob, abs=1e-4)  # decode equals the steps
    assert len(found[0].alignment) == len(found[0].text.split())
    assert any(view.role == "cross" for view in exhibit_of(run, "a b c").views)
    (desk / "source").write_text("a b\n")
    (desk / "reference").write_text("a b b a\n")
    report = run.evaluate(source="source", reference="reference", metrics="length,exact")
    assert list(report.json["scores"]) == ["length", "exact"]
    again = train({**TABLE, "training": {**TABLE["training"], "steps": 6}}, "run", resume=True)
    assert again.step in (2, 4, 6)


def test_a_run_says_which_plugin_it_needs_and_imports_none(desk):
    plugins.load("near.py")
    train({**TABLE, "task": "translate", "data": {"builtin": "reverse", "count": 200},
           "training": {**TABLE["training"], "metric": "loss"}}, "run")  # fmt: skip
    (desk / "near.py").write_text("raise SystemExit('imported')")
    plugins.LOADED.clear()
    plugins.PROVIDERS.clear()
    del KINDS["near"], os.environ[plugins.VARIABLE]
    with pytest.raises(CommandError, match="run: it needs the plugin near.py; give --plugin near.py"):
        regard.load("run")
    with pytest.raises(CommandError, match="plugins: it needs the plugin near.py; give --plugin near.py"):
        read_settings(read(Path("run/config.toml")))


def test_a_child_process_imports_the_same(desk):
    plugins.load("near.py")
    code = "from regard.tasks.settings import read_settings; print(read_settings({'model': {'kind': 'near'}}).kind)"
    assert json.loads(os.environ[plugins.VARIABLE]) == [str(desk / "near.py")]
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd="/") == "near\n"


def test_a_command_takes_a_plugin(desk):
    command = [sys.executable, "-m", "regard", "models", "near"]
    shown = subprocess.check_output([*command, "--plugin", "near.py"], text=True)
    assert "width of embeddings and states" in shown
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1


def test_a_short_name_is_that_of_an_entry_point(desk, monkeypatch):
    info = desk / "site" / "mine-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[regard.plugins]\nnearby = near\n")
    (desk / "near.py").rename(desk / "site" / "near.py")
    monkeypatch.syspath_prepend(desk / "site")
    plugins.load("nearby")
    assert plugins.providers(kind="near") == ("nearby",)
    assert read_settings({"model": {"kind": "near"}}).table()["plugins"] == ["nearby"]
    with pytest.raises(CommandError, match="no module or plugin 'elsewhere'; .*: nearby"):
        plugins.load("elsewhere")


def test_what_a_plugin_lacks_is_its_own_error(desk):
    (desk / "broken.py").write_text("import no_such_thing")
    with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
        plugins.load("broken.py")
    with pytest.raises(CommandError, match=r"absent.py: no such file"):
        plugins.load("absent.py")
    (desk / "a-b.py").write_text("")
    with pytest.raises(CommandError, match="rename the file"):
        plugins.load("a-b.py")
    (desk / "json.py").write_text("")
    with pytest.raises(CommandError, match="another module is already called 'json'"):
        plugins.load("json.py")


def test_rows_are_refused_that_are_none_or_take_a_name(desk):
    with pytest.raises(ArgumentError, match="0 rows given"):
        regard.register("x")
    with pytest.raises(ArgumentError, match="2 rows given"):
        regard.register("x", metric=Metric(text_scores.measure_exact), study=1)
    with pytest.raises(ArgumentError, match="a metric without a name"):
        regard.register(metric=Metric(text_scores.measure_exact))
    with pytest.raises(ArgumentError, match="the kind 'rnn' already exists, from Regard itself"):
        regard.register(kind=KINDS["rnn"])
    regard.register("mine", metric=Metric(text_scores.measure_exact))
    assert plugins.providers(metric="mine", kind="rnn", task=None) == (__name__,)
    regard.register("mine", metric=Metric(text_scores.measure_exact))  # the same plugin once more
    plugins.PROVIDERS["metric", "mine"] = "another"
    with pytest.raises(ArgumentError, match="already exists, from another"):
        regard.register("mine", metric=Metric(text_scores.measure_exact))


def test_a_metric_of_a_plugin_is_one_that_a_checkpoint_is_chosen_by(desk):
    with pytest.raises(ConfigError, match=r'training.metric: "length" given, expected "bleu", .* or "loss"'):
        read_settings({"training": {"metric": "length"}})
    plugins.load("mirrors.py")
    assert list(METRICS)[-1] == "length"
    assert read_settings({"training": {"metric": "length"}}).training.metric == "length"
    with pytest.raises(ConfigError, match="training.validate_rows: 0 given"):
        read_settings({"training": {"metric": "length", "validate_rows": 0}})
    with pytest.raises(ConfigError, match='"length" given with task = "language-model"'):
        read_settings({"task": "language-model", "training": {"metric": "length"}})


def test_the_environment_may_be_wrong(desk, monkeypatch):
    for given in ("near.py", "[1]", '{"a": 1}'):
        monkeypatch.setenv(plugins.VARIABLE, given)
        with pytest.raises(CommandError, match="expected a JSON list of names of plugins"):
            read_settings({})


def test_a_configuration_may_name_plugins_wrongly(desk):
    for given in ("near.py", [1], 3):
        with pytest.raises(CommandError, match="plugins: expected a list of names of plugins"):
            read_settings({"plugins": given})
    with pytest.raises(CommandError, match="it needs the plugins a.py and b; give --plugin a.py --plugin b"):
        read_settings({"plugins": ["a.py", "b"]})
    assert TASKS.keys() == {"translate", "language-model", "caption", "classify"}


def test_a_row_may_have_the_old_names_of_its_fields_with_one_warning():
    made = {"name": "old", "paper": "", "config": KINDS["rnn"].config}

    @plugins.renamed_fields(what="summary", file="model_class")
    @dataclass(frozen=True)
    class Row(Kind):
        """A row of a new class, so that no warning was given yet."""

    with pytest.warns(DeprecationWarning, match=r"Row\.\w+ is now called") as warned:
        rows = [Row(**made, what="a kind", file="a.B"), Row(**made, what="another", file="a.C")]
    assert [(row.what, row.file) for row in rows] == [("a kind", "a.B"), ("another", "a.C")]
    messages = sorted(str(each.message) for each in warned)
    assert messages == ["Row.file is now called model_class", "Row.what is now called summary"]
    assert {each.filename for each in warned} == {__file__}
    assert rows[0] == Row(**made, summary="a kind", model_class="a.B")
    assert replace(rows[0], summary="new").what == "new"
