"""`regard runs` from the command line."""

import json

import pytest
from cli.typing_in import Command

COMMAND = Command("runs")
typed, right, refused = COMMAND.typed, COMMAND.right, COMMAND.refused


@pytest.fixture(scope="module")
def home(furnish):
    return furnish(**{"one": "transformer", "two": "han"})


def test_a_table_of_runs(home):
    shown = right(home)
    head, *rows = shown.stdout.splitlines()
    assert head.split() == ["run", "kind", "task", "data", "steps", "best", "score", "date", "size"]
    assert [row.split()[:3] for row in rows] == [
        [str(home / "one"), "transformer", "translate"],
        [str(home / "two"), "han", "classify"],
    ]


def test_an_object_a_run(home):
    runs = [json.loads(line) for line in typed(home, "--json").stdout.splitlines()]
    assert [run["kind"] for run in runs] == ["transformer", "han"]


def test_a_folder_without_runs(tmp_path):
    shown = typed(tmp_path)
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "no run folders in it" in shown.stderr
    assert refused(tmp_path / "none") == f"{tmp_path / 'none'}: no such folder, expected one with run folders in it"
    (tmp_path / "file").touch()
    assert refused(tmp_path / "file") == f"{tmp_path / 'file'}: a file given, expected a folder with run folders in it"
