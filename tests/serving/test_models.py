"""The names of models: folders' own, those that a person gives, and ensembles."""

from pathlib import Path

import pytest

from regard.errors import CommandError
from regard.serving.models import parse_runs


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.toml").touch()


def test_a_model_has_the_name_of_its_folder_or_the_one_that_is_given(runs):
    models = parse_runs(["runs/a", "de=runs/b", "both=runs/a+runs/b"])
    assert models == {"a": ["runs/a"], "de": ["runs/b"], "both": ["runs/a", "runs/b"]}


def test_a_link_to_a_run_has_its_own_name(runs):
    """`runs/current` stays what requests name, wherever it leads."""
    Path("runs/current").symlink_to("a")
    assert list(parse_runs(["runs/current", "runs/../runs/b/"])) == ["current", "b"]


def test_two_models_of_one_name_are_refused(runs):
    with pytest.raises(CommandError, match="a is the name of another model; give it one of its own: NAME=runs/a"):
        parse_runs(["a=runs/b", "runs/a"])
