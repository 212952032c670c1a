"""Import writes a run folder from any reader's result, completely or not at all."""

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from plugin_rows import forget_plugins

import regard
from regard.config import read
from regard.errors import CheckpointError, CommandError, ConfigError, DataError
from regard.interop.formats import Format, Imported
from regard.interop.importing import import_model
from regard.run import load
from regard_bench.serving import write_run

MODEL = {"size": 8, "heads": 2, "layers": 1, "hidden": 8, "tied": "all"}


def hand_over(folder: Path) -> Imported:
    """Read a copied run as if it were a foreign folder."""
    run = load(folder / "run")
    table = {key: value for key, value in read(folder / "run" / "config.toml").items() if key != "training"}
    weights = {name: tensor for name, tensor in run.model.state_dict().items() if name != "target.tokens.weight"}
    weights.pop("readout.weight")
    if (folder / "nan").exists():
        weights["readout.bias"] = weights["readout.bias"] * float("nan")
    if (folder / "long").exists():
        table["data"]["longest"] = 0
    if (folder / "short").exists():
        weights.popitem()
    notes = ("It has been read.",)
    return Imported(table, run.tokenizers, weights, (folder / "run" / "config.toml",), notes)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    with forget_plugins(tmp_path, monkeypatch):
        module = ModuleType("handing_over")
        module.hand_over = hand_over
        monkeypatch.setitem(sys.modules, "handing_over", module)
        regard.register(
            format=Format("run", "a run", "handing_over.hand_over", recognise=lambda folder: (folder / "run").exists())
        )
        (tmp_path / "theirs").mkdir()
        write_run(tmp_path / "theirs" / "run", MODEL, 20)
        yield tmp_path


def test_a_run_like_any_other(desk):
    report = import_model("theirs", "runs/new", command="regard import theirs")
    assert (report.format, report.kind, report.pieces, report.notes) == ("run", "transformer", 14, report.notes)
    assert report.notes == ("It has been read.",)
    own, theirs = load("runs/new"), load("theirs/run")
    assert own.step == 0
    for name, tensor in theirs.model.state_dict().items():
        assert torch.equal(tensor, own.model.state_dict()[name])
    assert own.translate(["aaaa baaa"]) == theirs.translate(["aaaa baaa"])
    manifest = json.loads(Path("runs/new/checkpoints/step-000000/manifest.json").read_text())
    (file,) = manifest["imported"]["files"]
    assert (file, manifest["imported"]["folder"]) == ("run/config.toml", "theirs")
    assert report.parameters == sum(each.numel() for each in own.model.parameters())


def test_a_format_by_name_and_in_python(desk):
    assert regard.import_model("theirs", "new", format="run").folder == Path("new")
    with pytest.raises(CommandError, match='--format: "rum" given, no such format'):
        import_model("theirs", "newer", format="rum")


@pytest.mark.parametrize(
    ("mark", "error", "problem"),
    [
        ("nan", CheckpointError, "readout.bias has NaN in it"),
        ("long", ConfigError, "data.longest"),
        ("short", CheckpointError, "is missing"),
    ],
)
def test_nothing_is_left_of_what_failed(desk, mark, error, problem):
    (desk / "theirs" / mark).touch()
    with pytest.raises(error, match=problem):
        import_model("theirs", "a/new")
    assert sorted(path.name for path in desk.iterdir() if not path.name.startswith("cache")) == ["theirs"]


def test_a_folder_that_is_none_or_a_name_that_is_taken(desk):
    shutil.rmtree(desk / "theirs" / "run")
    with pytest.raises(DataError, match="theirs: an empty folder; expected a folder with"):
        import_model("theirs", "new")
    with pytest.raises(CommandError, match="--out: theirs already exists"):
        import_model("theirs", "theirs")
    with pytest.raises(CommandError, match="nothing: no such folder"):
        import_model("nothing", "new")
