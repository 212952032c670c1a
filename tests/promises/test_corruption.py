"""An error names what is corrupt: a flipped byte, a truncated file, swapped files, or a missing one."""

import hashlib
import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from forked import ended
from safetensors.torch import save
from tiny import table

from regard.errors import CheckpointError, ConfigError, DataError
from regard.run import load
from regard.tasks import start
from regard.training import Checkpoints, read_checkpoint
from regard.training.checkpoint import canonical

REFUSED = (CheckpointError, ConfigError, DataError)
LOADED = ("config.toml", "tokenizer.json", "checkpoints/step-000004/manifest.json")
LOADED = (*LOADED, "checkpoints/step-000004/model.safetensors")
RESUMED = (*LOADED, "checkpoints/step-000004/trainer.safetensors")
SOURCES = ["1 2 3", "9 8 7 6 5 4", "0"]
TRIES = [30, pytest.param(200, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Train runs that differ in data, seed and model."""
    home = tmp_path_factory.mktemp("runs")
    made = {}
    for name, changes in {
        "one": {"training__seed": 1},
        "seed": {"training__seed": 3},
        "two": {"training__seed": 2, "tokenizer": {"kind": "character"}},
        "heads": {"model": {"kind": "transformer", "size": 16, "heads": 4, "layers": 1, "hidden": 16}},
    }.items():
        given = table(home / name, **{"training__steps": 4, "training__validate_every": 2, **changes})
        start(given, home / name / "run")
        made[name] = home / name / "run"
    return made


@pytest.fixture
def run(runs, tmp_path) -> Path:
    """Copy the first run, to damage it."""
    shutil.copytree(runs["one"], tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def logits(run: Path) -> torch.Tensor:
    opened = load(run, checkpoint="last")
    from regard.decoding import tokens_of

    tokens = tokens_of([[5, 6, 7], [8]])
    with torch.no_grad():
        return torch.cat(
            [weight.flatten() for weight in opened.model.parameters()] + [opened.model(tokens, tokens).flatten()]
        )


def refused_or_the_same(run: Path, spoilt: Path, expected: torch.Tensor) -> bool:
    """Return whether loading fails with the file's name; otherwise check that the logits are unchanged."""
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
    logits(run)  # the model does not depend on it


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
        with pytest.raises(CheckpointError, match=f"{path.parent.name}/.*(damaged|from step)"):
            read_checkpoint(path.parent)


@pytest.mark.parametrize("other", ["two", "heads"])
@pytest.mark.parametrize("file", RESUMED)
def test_files_swapped_between_two_runs(run, runs, other, file):
    expected = logits(run)
    shutil.copyfile(runs[other] / file, run / file)
    if file.endswith("trainer.safetensors"):
        with pytest.raises(CheckpointError, match="trainer.safetensors: damaged"):
            read_checkpoint((run / file).parent)
    elif file.endswith("manifest.json"):  # the model beside it does not match the manifest
        with pytest.raises(CheckpointError, match="model.safetensors: damaged"):
            load(run, checkpoint="last")
    else:
        refused = refused_or_the_same(run, run / file, expected)
        same = (runs["one"] / file).read_bytes() == (runs[other] / file).read_bytes()
        # Another run's configuration may give the same model, and its tokenizer may be equal.
        assert refused or same or (file == "config.toml" and other == "two")


def test_a_checkpoint_of_another_run(run, runs):
    """The checkpoint is intact, but has another tokenizer, or other heads of the same widths."""
    for other, named in (("two", "tokenizer.json"), ("heads", "config.toml")):
        folder = run / "checkpoints/step-000004"
        shutil.rmtree(folder)
        shutil.copytree(runs[other] / "checkpoints/step-000004", folder)
        with pytest.raises(CheckpointError, match=named):
            load(run, checkpoint="last")


def test_a_resume_of_a_spoilt_run_leaves_it_as_it_was(run, runs):
    """The resume fails before it overwrites anything."""
    given = table(runs["one"].parent, training__steps=6, training__validate_every=2)
    given["model"]["heads"] = 4
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match="made with model.heads 2, but this run has 4"):
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


# ---- intact files with right checksums that are wrong all the same


def record_of(run: Path, **changes) -> None:
    """Write a changed best.json as Regard would have written it."""
    path = run / "checkpoints/best.json"
    found = json.loads(path.read_bytes())
    found.pop("sha256")
    path.write_bytes(canonical({**found, **changes}))


def resealed(run: Path, name: str, tensors: dict[str, torch.Tensor] | None = None, **changes) -> None:
    """Change a checkpoint's weights or manifest, and renew all checksums, including that of best.json."""
    folder = run / "checkpoints" / name
    found = json.loads((folder / "manifest.json").read_bytes())
    found.pop("sha256")
    if tensors is not None:
        content = save(tensors)
        (folder / "model.safetensors").write_bytes(content)
        found["files"]["model.safetensors"] = {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    (folder / "manifest.json").write_bytes(canonical({**found, **changes}))
    sha256 = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    record_of(run, checkpoint=name, manifest=sha256)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return dict(read_checkpoint(run / "checkpoints/step-000004").model)


def swap_steps(run: Path, runs) -> None:
    one, two = Checkpoints(run).steps()
    two.rename(run / "aside")
    one.rename(two)
    (run / "aside").rename(one)


def another_run(run: Path, runs) -> None:
    """Replace the best checkpoint by that of a run which differs only in its seed."""
    shutil.rmtree(run / "checkpoints/step-000004")
    shutil.copytree(runs["seed"] / "checkpoints/step-000004", run / "checkpoints/step-000004")


def other_shape(run: Path, runs) -> None:
    found = weights(run)
    name = next(name for name, tensor in found.items() if tensor.dim() == 2)
    resealed(run, "step-000004", {**found, name: found[name][:-1].clone()})


def one_more(run: Path, runs) -> None:
    resealed(run, "step-000004", {**weights(run), "model.more": torch.zeros(3)})


def one_less(run: Path, runs) -> None:
    resealed(run, "step-000004", dict(list(weights(run).items())[1:]))


WRONG = {
    "best.json names another checksum": (
        lambda run, runs: record_of(run, manifest="0" * 64),
        "step-000004/manifest.json",
    ),
    "best.json names another checkpoint": (lambda run, runs: record_of(run, checkpoint="step-000002"), "step-000002/"),
    "best.json names none": (lambda run, runs: record_of(run, checkpoint="step-000099"), "step-000099: missing"),
    "best.json leads out": (lambda run, runs: record_of(run, checkpoint="../../other"), "best.json: checkpoint is"),
    "best.json names a path": (lambda run, runs: record_of(run, checkpoint="/"), "best.json: checkpoint is"),
    "best.json names a number": (lambda run, runs: record_of(run, checkpoint=4), "best.json: checkpoint is 4"),
    "best.json without a checksum": (lambda run, runs: record_of(run, manifest=None), "best.json: manifest is"),
    "best.json with other counters": (lambda run, runs: record_of(run, counters=[1]), "best.json: counters is"),
    "best.json with a score in words": (
        lambda run, runs: record_of(run, counters={"best": "good", "best_step": 4}),
        "best.json: counters.best is",
    ),
    "best.json of another format": (lambda run, runs: record_of(run, format=2), "best.json: format 2 given"),
    "best.json of another run": (
        lambda run, runs: shutil.copyfile(runs["seed"] / "checkpoints/best.json", run / "checkpoints/best.json"),
        "step-000004/manifest.json: not the one that best.json names",
    ),
    "a checkpoint of another run": (another_run, "step-000004/manifest.json: not the one that best.json names"),
    "steps exchanged": (swap_steps, "step-000004/manifest.json"),
    "another step": (lambda run, runs: resealed(run, "step-000004", step=2), "step-000004/manifest.json: from step 2"),
    "a weight of another shape": (other_shape, "step-000004/model.safetensors: weight"),
    "a weight too many": (one_more, "step-000004/model.safetensors: weight model.more"),
    "a weight too few": (one_less, "step-000004/model.safetensors: weight"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_right_checksum_of_the_wrong_thing(run, runs, what):
    """Loading the best checkpoint fails with the file's name; a resume fails too, or starts from a right one."""
    spoil, named = WRONG[what]
    assert Checkpoints(run).best().name == "step-000004"
    spoil(run, runs)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(REFUSED) as caught:
        load(run)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    given = table(runs["one"].parent, training__steps=6, training__validate_every=2, training__seed=1)
    said = ended(lambda: start(given, run, resume=True))
    assert "traceback" not in said
    assert "\n" not in said
    if said:
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    else:  # the last checkpoint is right: the best one stays as wrong as before, or gets better
        assert "best.json" in what or "another run" in what


@pytest.mark.parametrize("tries", TRIES)
def test_changed_bytes_of_the_record(run, tries):
    path = run / "checkpoints/best.json"
    whole = path.read_bytes()
    for _ in range(tries):
        place = random.randrange(len(whole))
        flipped = whole[:place] + bytes([whole[place] ^ 1 << random.randrange(8)]) + whole[place + 1 :]
        path.write_bytes(random.choice([flipped, whole[:place], whole + b" "]))
        with pytest.raises(CheckpointError, match="best.json: (damaged|format)") as caught:
            load(run)
        assert "remove it, and the best checkpoint is found from the manifests" in str(caught.value)
        load(run, checkpoint="last")
    path.unlink()
    assert load(run).step == 4
