"""`regard export` as a person types it, with mistakes."""

import re

import pytest
from cli.typing_in import Command

from regard.bench.serving import write_run

pytestmark = pytest.mark.unchecked  # typer's own classes are not those it documents
COMMAND = Command("export")
MODEL = {"size": 8, "heads": 2, "layers": 1, "hidden": 8, "norm": "post"}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", MODEL, 20)
    write_run(tmp_path / "rotary", {**MODEL, "positions": "rotary"}, 20)
    return tmp_path


def test_what_was_made(desk):
    shown = COMMAND.typed("run", "--to", "marian", "--out", "out/marian")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert re.match(r"out/marian: marian, 4 files, 0\.0 MB\n", shown.stdout)
    assert (desk / "out" / "marian" / "config.json").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["run", "--to", "merian", "--out", "out"], "--to: \"merian\" given, no such format; did you mean 'marian'?"),
        (["run", "--to", "marian", "--out", "run"], "--out: run already exists; give another name, or remove it"),
        (["nothing", "--to", "marian", "--out", "out"], "nothing: not a run folder, it has no config.toml"),
        (["rotary", "--to", "marian", "--out", "out"], 'model.positions: "rotary" given, but marian has only "sinuso'),
        (["run", "--to", "marian", "--out", "out", "--checkpoint", "step-3"], "run/checkpoints: no checkpoint step-3"),
    ],
)
def test_mistakes_are_one_sentence(desk, arguments, problem):
    assert COMMAND.refused(*arguments).startswith(problem)
    assert not (desk / "out").exists()
