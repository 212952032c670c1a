"""`regard show` from the command line."""

import json
import shlex

import pytest
import tomli_w
from cli.typing_in import Command
from tiny import table

pytestmark = pytest.mark.usefixtures("without_report")

COMMAND = Command("show")
typed, right, refused = COMMAND.typed, COMMAND.right, COMMAND.refused


def test_everything_about_a_run_with_the_command_that_trained_it(tmp_path):
    (tmp_path / "my config.toml").write_text(tomli_w.dumps(table(tmp_path, training__steps=2)))
    words = [str(tmp_path / "my config.toml"), "--seed", "3", "-o", str(tmp_path / "run")]
    Command("train").right(*words)
    shown = right(tmp_path / "run")
    rows = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines() if not line.startswith(" "))
    assert rows["model"].startswith("transformer, ")
    assert rows["steps"].startswith("2 of 2")
    assert rows["command"] == shlex.join(["regard", "train", *words])
    assert rows["again"] == f"regard train {tmp_path / 'run' / 'config.toml'} --out NEW"
    summary = json.loads(typed(tmp_path / "run", "--json").stdout)
    assert summary["commands"] == [rows["command"]]


def test_a_run_that_started_from_another_is_trained_again_from_it(tmp_path):
    (tmp_path / "config.toml").write_text(tomli_w.dumps(table(tmp_path, training__steps=2)))
    one, two, three = (str(tmp_path / name) for name in ("a run", "tuned", "new"))
    Command("train").right(tmp_path / "config.toml", "-o", one)
    data = ["--set", "data.count=60", "--set", "training.steps=2"]
    Command("train").right(tmp_path / "config.toml", "--from", one, "-o", two, *data)
    (again,) = (line for line in typed(two).stdout.splitlines() if line.startswith("again"))
    words = shlex.split(again)[1:]
    assert words == ["regard", "train", f"{two}/config.toml", "--from", one, "--out", "NEW"]
    Command("train").right(*words[2:-1], three)


def test_what_is_no_run(tmp_path):
    assert refused(tmp_path) == f"{tmp_path}: not a run folder, it has no config.toml; regard runs lists run folders"
