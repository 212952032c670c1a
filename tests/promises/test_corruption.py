"""Corruption is refused by name: a flipped byte, a truncated file, swapped files, a missing one."""

import random
import shutil
from pathlib import Path

import pytest
import torch
from tiny import table

from regard.errors import CheckpointError, ConfigError, DataError
from regard.run import load
from regard.training.checkpoint import Checkpoints, read_checkpoint
from regard.training.start import start

REFUSED = (CheckpointError, ConfigError, DataError)
LOADED = ("config.toml", "tokenizer.json", "checkpoints/step-000004/manifest.json")
LOADED = (*LOADED, "checkpoints/step-000004/model.safetensors")
RESUMED = (*LOADED, "checkpoints/step-000004/trainer.safetensors")
SOURCES = ["1 2 3", "9 8 7 6 5 4", "0"]
TRIES = [30, pytest.param(200, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Two runs that differ in data and seed, and one with another model."""
    home = tmp_path_factory.mktemp("runs")
    made = {}
    for name, changes in {
        "one": {"training__seed": 1},
        "two": {"training__seed": 2, "tokenizer": {"kind": "character"}},
        "heads": {"model": {"kind": "transformer", "size": 16, "heads": 4, "layers": 1, "hidden": 16}},
    }.items():
        given = table(home / name, **{"training__steps": 4, "training__validate_every": 2, **changes})
        start(given, home / name / "run")
        made[name] = home / name / "run"
    return made


@pytest.fixture
def run(runs, tmp_path) -> Path:
    """A copy of the first to be spoilt."""
    shutil.copytree(runs["one"], tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def logits(run: Path) -> torch.Tensor:
    opened = load(run, checkpoint="last")
    from regard.decoding.rows import tokens_of

    tokens = tokens_of([[5, 6, 7], [8]])
    with torch.no_grad():
        return torch.cat(
            [weight.flatten() for weight in opened.model.parameters()] + [opened.model(tokens, tokens).flatten()]
        )


def refused_or_the_same(run: Path, spoilt: Path, expected: torch.Tensor) -> bool:
    """Refused with the name of the file, or (a comment, the path of a corpus) without any meaning for the model."""
    found, message = None, ""
    try:
        found = logits(run)
    except REFUSED as error:
        message = str(error)
    if found is None:
        assert str(spoilt) in message, f"{spoilt} was spoilt, and the message is: {message}"
        assert "\n" not in message
        return True
    assert torch.equal(found, expected)
    return False


@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("how", ["flip", "cut", "longer"])
def test_changed_bytes(run, tries, how):
    expected = logits(run)
    for number in range(tries if how == "flip" else tries // 3):
        spoilt = run / LOADED[number % len(LOADED)]
        whole = spoilt.read_bytes()
        place = random.randrange(len(whole))
        if how == "flip":
            changed = whole[:place] + bytes([whole[place] ^ 1 << random.randrange(8)]) + whole[place + 1 :]
        else:
            changed = whole[:place] if how == "cut" else whole + random.randbytes(3)
        spoilt.write_bytes(changed)
        refused = refused_or_the_same(run, spoilt, expected)
        assert refused or spoilt.name == "config.toml"
        spoilt.write_bytes(whole)
    assert torch.equal(logits(run), expected)


@pytest.mark.parametrize("tries", TRIES)
def test_a_resume_refuses_what_only_it_reads(run, tries):
    folder = Checkpoints(run).last()
    spoilt = folder / "trainer.safetensors"
    whole = spoilt.read_bytes()
    for _ in range(tries):
        place = random.randrange(len(whole))
        flipped = whole[:place] + bytes([whole[place] ^ 1 << random.randrange(8)]) + whole[place + 1 :]
        spoilt.write_bytes(random.choice([flipped, whole[:place]]))
        with pytest.raises(CheckpointError, match="trainer.safetensors: damaged"):
            read_checkpoint(folder)
    logits(run)  # the model does not hang on it


@pytest.mark.parametrize("file", RESUMED)
def test_a_missing_file(run, file):
    spoilt = run / file
    spoilt.unlink()
    if file.endswith("trainer.safetensors"):
        with pytest.raises(CheckpointError, match="trainer.safetensors: No such file"):
            read_checkpoint(spoilt.parent)
        return
    with pytest.raises(REFUSED, match=spoilt.name):
        load(run, checkpoint="last")


@pytest.mark.parametrize("file", ["model.safetensors", "trainer.safetensors", "manifest.json"])
def test_files_swapped_between_two_checkpoints_of_a_run(run, file):
    one, two = (path / file for path in Checkpoints(run).steps())
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    for path in (one, two):
        with pytest.raises(CheckpointError, match=f"{path.parent.name}/.*(damaged|of step)"):
            read_checkpoint(path.parent)


@pytest.mark.parametrize("other", ["two", "heads"])
@pytest.mark.parametrize("file", RESUMED)
def test_files_swapped_between_two_runs(run, runs, other, file):
    expected = logits(run)
    shutil.copyfile(runs[other] / file, run / file)
    if file.endswith("trainer.safetensors"):
        with pytest.raises(CheckpointError, match="trainer.safetensors: damaged"):
            read_checkpoint((run / file).parent)
    elif file.endswith("manifest.json"):  # what does not fit to it is the model beside it
        with pytest.raises(CheckpointError, match="model.safetensors: damaged"):
            load(run, checkpoint="last")
    else:
        refused = refused_or_the_same(run, run / file, expected)
        same = (runs["one"] / file).read_bytes() == (runs[other] / file).read_bytes()
        # Another run's configuration may have the same model, and another run's tokenizer be the same.
        assert refused or same or (file == "config.toml" and other == "two")


def test_a_checkpoint_of_another_run(run, runs):
    """Whole in itself, but with another tokenizer, or other heads of the same widths."""
    for other, named in (("two", "tokenizer.json"), ("heads", "config.toml")):
        folder = run / "checkpoints/step-000004"
        shutil.rmtree(folder)
        shutil.copytree(runs[other] / "checkpoints/step-000004", folder)
        with pytest.raises(CheckpointError, match=named):
            load(run, checkpoint="last")


def test_a_resume_of_a_spoilt_run_leaves_it_as_it_was(run, runs):
    """Refused before anything is written over."""
    given = table(runs["one"].parent, training__steps=6, training__validate_every=2)
    given["model"]["heads"] = 4
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match="made with model.heads 2, and this run has 4"):
        start(given, run, resume=True)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    (run / "tokenizer.json").write_bytes((runs["two"] / "tokenizer.json").read_bytes())
    with pytest.raises(CheckpointError, match="tokenizer.json"):
        start(given, run, resume=True)


def test_a_run_to_begin_with_is_checked_too(run, runs, tmp_path):
    given = table(runs["one"].parent, training__steps=2)
    shutil.copyfile(runs["two"] / "tokenizer.json", run / "tokenizer.json")
    with pytest.raises(CheckpointError, match="tokenizer.json"):
        start(given, tmp_path / "new", base=run)
    assert not (tmp_path / "new").exists()
