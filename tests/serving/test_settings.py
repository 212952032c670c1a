"""A server's settings: each has help and limits, and reading them does not import torch."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from regard.config import parse
from regard.errors import CheckpointError, CommandError, ConfigError
from regard.serving.settings import ServeSettings, parse_runs


def test_the_limits_are_those_that_are_promised():
    settings = ServeSettings()
    assert (settings.host, settings.port, settings.device, settings.precision) == ("127.0.0.1", 8080, "auto", "auto")
    assert (settings.characters, settings.texts, settings.body_bytes) == (20_000, 128, 2**20)
    assert (settings.picture_bytes, settings.look_words, settings.waiting) == (10 * 2**20, 200, 512)
    assert (settings.seconds, settings.grace) == (30.0, 20.0)
    assert (settings.keys, settings.rate, settings.hosts, settings.origins) == (None, 0, (), ())
    assert settings.log_texts is False


@pytest.mark.parametrize("field", dataclasses.fields(ServeSettings), ids=lambda field: field.name)
def test_every_setting_has_help_and_numbers_have_limits(field):
    assert field.metadata["help"]
    if isinstance(field.default, bool) or not isinstance(field.default, int | float):
        return
    assert "most" in field.metadata
    assert {"least", "above"} & field.metadata.keys()
    parse(ServeSettings, {field.name: field.metadata["most"]})
    for value in (field.metadata["most"] + 1, -1):
        with pytest.raises(ConfigError, match=f"{field.name}: .* given, expected"):
            parse(ServeSettings, {field.name: value})


def test_they_can_be_read_without_torch():
    code = "import sys, regard.serving.settings; sys.exit('torch' in sys.modules or 'fastapi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


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
    """Requests use the name `runs/current`, wherever the link leads."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "config.toml").touch()
    Path("runs/current").symlink_to("a")
    assert parse_runs(["runs/current", "runs/../runs/b/"]) == {"current": ["runs/current"], "b": ["runs/../runs/b/"]}
