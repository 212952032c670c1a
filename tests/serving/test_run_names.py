"""The names of models: as folders have them, as a person gives them, and those of links."""

import subprocess
import sys
from pathlib import Path

import pytest

from regard.errors import CheckpointError, CommandError
from regard.serving.settings import parse_runs


@pytest.fixture
def at_desk(tmp_path, monkeypatch):
    for name in ("one", "two", "a=b", "a+b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.toml").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "models"),
    [
        (["runs/one", "runs/two/"], {"one": ["runs/one"], "two": ["runs/two/"]}),
        (["de=runs/one"], {"de": ["runs/one"]}),
        (["both=runs/one+runs/two", "runs/two"], {"both": ["runs/one", "runs/two"], "two": ["runs/two"]}),
        (["runs/a=b"], {"a=b": ["runs/a=b"]}),
        (["x=runs/a=b"], {"x": ["runs/a=b"]}),
        (["runs/a+b"], {"a+b": ["runs/a+b"]}),
    ],
)
def test_arguments_name_models(at_desk, arguments, models):
    assert parse_runs(arguments) == models


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "none: no such folder, expected a run folder; regard runs lists run folders"),
        (["x=runs/one+none"], "none: no such folder, expected a run folder; regard runs lists run folders"),
        (["=runs/one"], "=runs/one: expected RUN, NAME=RUN, or NAME=RUN\\+RUN for an ensemble"),
        (["x="], "x=: expected RUN, NAME=RUN"),
        (["x=runs/one+"], "x=runs/one\\+: expected RUN"),
        (["runs/one", "one=runs/two"], "one=runs/two: one is the name of another model; give it one of its own"),
    ],
)
def test_arguments_that_are_wrong(at_desk, arguments, message):
    with pytest.raises((CheckpointError, CommandError), match=f"^{message}"):
        parse_runs(arguments)


def test_a_link_to_a_run_has_its_own_name(tmp_path, monkeypatch):
    """`runs/current` stays what requests name, wherever it leads."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "config.toml").touch()
    Path("runs/current").symlink_to("a")
    assert parse_runs(["runs/current", "runs/../runs/b/"]) == {"current": ["runs/current"], "b": ["runs/../runs/b/"]}


def test_names_are_read_without_torch():
    """`regard serve x=none` answers at once."""
    code = "import sys, regard.serving.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
