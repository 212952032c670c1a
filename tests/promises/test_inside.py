"""Regard writes a run folder, whatever its origin, only inside that folder."""

import os
import shutil
from pathlib import Path

import pytest
import tomli_w
from tiny import table
from typer.testing import CliRunner

from regard.alignment import AlignmentSettings
from regard.cli import app
from regard.config import read
from regard.errors import CheckpointError
from regard.run import load
from regard.tasks import start

LONGER = {"training__steps": 4, "training__validate_every": 2}
# Every entry of a run folder that a resume reads or that any command writes.
LINKS = [
    ".lock",
    "config.toml",
    "tokenizer.json",
    "metrics.jsonl",
    "log.txt",
    "report.html",
    "alignment.json",
    "tensorboard",
    "checkpoints",
    "checkpoints/best.json",
    "checkpoints/step-000002",
    "checkpoints/step-000004",
    "checkpoints/average",
    "checkpoints/.writing-step-000004",
    "checkpoints/.old-average",
    "checkpoints/step-000002/model.safetensors",
    "checkpoints/step-000002/trainer.safetensors",
    "checkpoints/step-000002/manifest.json",
    ".config.toml.new",
    "metrics.jsonl.part",
    "report.html.part",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    start(table(home, training__steps=2, training__validate_every=2), home / "run")
    return home


@pytest.fixture
def run(home, tmp_path) -> Path:
    shutil.copytree(home / "run", tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def planted(run: Path, name: str, outside: Path, dangling: bool) -> Path:
    """Move an entry of a run folder outside, or remove it, and put a link in its place."""
    link, target = run / name, outside / "target"
    outside.mkdir()
    (outside / "other").write_text("mine")
    if link.exists() and not dangling:
        link.rename(target)
    elif link.is_dir():
        shutil.rmtree(link)
    else:
        link.unlink(missing_ok=True)
    if not target.exists() and not dangling:
        target.write_text("not yours")
    link.symlink_to(target)
    return link


@pytest.mark.parametrize("dangling", [False, True])
@pytest.mark.parametrize("name", LINKS)
def test_no_link_that_leads_out_is_followed(run, home, tmp_path, name, dangling):
    link = planted(run, name, tmp_path / "outside", dangling)
    before = contents(tmp_path / "outside"), contents(run)
    with pytest.raises(CheckpointError, match=f"{link}: a link that leads to .*, out of the run folder; remove it"):
        start(table(home, **LONGER), run, resume=True)
    result = CliRunner().invoke(app, ["train", "--resume", str(run)])
    assert result.exit_code == 2
    assert f"regard: {link}: a link that leads to" in result.stderr
    assert (contents(tmp_path / "outside"), contents(run)) == before


def test_a_new_run_into_a_folder_with_such_a_link(home, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").symlink_to(tmp_path / "outside")
    with pytest.raises(CheckpointError, match="checkpoints: a link that leads to"):
        start(table(home, **LONGER), tmp_path / "run")
    assert os.listdir(tmp_path / "outside") == []
    assert os.listdir(tmp_path / "run") == ["checkpoints"]


def test_the_folder_itself_and_those_above_it_may_be_links(run, home, tmp_path):
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere/run")
    assert start(table(home, **LONGER), tmp_path / "link", resume=True).result.step == 4
    assert load(tmp_path / "link").step in (2, 4)
    start(table(home, **LONGER), tmp_path / "elsewhere/other")
    assert (tmp_path / "other/config.toml").is_file()


def test_a_link_that_stays_inside(run, home):
    (run / "checkpoints").rename(run / "kept")
    (run / "checkpoints").symlink_to("kept")
    (run / "notes").symlink_to("/")  # a user's own link, which Regard never reads
    assert start(table(home, **LONGER), run, resume=True).result.step == 4


def test_temporary_names_are_never_those_that_somebody_put_there(run, home, tmp_path):
    """Links stand at the temporary names that the process will use; the files behind them stay unchanged."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for name in ("config.toml", "tokenizer.json", "report.html", "alignment.json"):
        (run / f".{name}.{os.getpid()}").symlink_to(outside)
    (run / "checkpoints/.new-best").write_text("left")
    AlignmentSettings("decoder.blocks.0.cross").write(run)
    start(table(home, **LONGER), run, resume=True)
    assert outside.read_text() == "mine"
    assert list(run.rglob(".*")) == []


def test_the_cache_of_somebody_else(run, home, tmp_path, monkeypatch):
    """A run's configuration cannot set the cache folder: a resume uses the default unless the command sets one."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "default"))
    config = read(run / "config.toml")
    config["data"]["cache"] = str(tmp_path / "planted")
    (run / "config.toml").write_text(tomli_w.dumps(config))
    assert load(run).settings.data.cache is None
    result = CliRunner().invoke(app, ["train", "--resume", str(run), "--set", "training.steps=3"])
    assert result.exit_code == 0, result.stderr
    assert "data.cache of the run is ignored and the default cache is used" in result.stderr
    assert not (tmp_path / "planted").exists()
    assert list((tmp_path / "default").iterdir())
    given = f"data.cache={tmp_path / 'given'}"
    result = CliRunner().invoke(app, ["train", "--resume", str(run), "--set", "training.steps=4", "--set", given])
    assert result.exit_code == 0, result.stderr
    assert list((tmp_path / "given").iterdir())
    assert "data.cache" not in result.stderr
