"""A run is compared with the folder that it was imported from, where that still is as it was."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained import marian_folder

from regard import export_model, import_model
from regard.errors import VerificationError
from regard.interop.export import verify_export

pytest.importorskip("transformers")


@pytest.fixture
def desk(tmp_path) -> Path:
    return tmp_path


def test_an_import_that_went_wrong_is_seen_when_it_is_verified(desk, tmp_path):
    """A run whose numbers or weights are not those of its folder; one whose folder has moved, changed or gone."""
    marian_folder(desk / "mine")
    import_model(desk / "mine", tmp_path / "run")
    export_model(tmp_path / "run", tmp_path / "out", to="marian")
    shutil.copytree(tmp_path / "out", tmp_path / "wrong")
    config = json.loads((tmp_path / "wrong" / "config.json").read_text())
    for key, value in (("pad_token_id", 3), ("num_beams", 9), ("activation_dropout", 0.5)):
        reseal(tmp_path / "wrong", {**config, key: value})
        if key == "pad_token_id":
            with pytest.raises(VerificationError, match="pad_token_id is 3, expected the number of <pad>"):
                verify_export(tmp_path / "wrong")
            continue
        theirs = json.loads((desk / "mine" / "config.json").read_text())
        if key in theirs:
            with pytest.raises(VerificationError, match=rf"config\.json: {key} is {value}, but .* imported from"):
                verify_export(tmp_path / "wrong")
    assert "the same as mine, which it was imported from" in str(verify_export(tmp_path / "out"))
    assert f"{len(marian_tensors(tmp_path / 'out'))} tensors" in str(verify_export(tmp_path / "out"))
    (desk / "mine" / "source.spm").write_bytes((desk / "mine" / "source.spm").read_bytes() + b"\0\0")
    assert "it has changed since" in str(verify_export(tmp_path / "out"))
    shutil.move(desk / "mine", desk / "elsewhere")
    assert "it is not there any more" in str(verify_export(tmp_path / "out"))


def marian_tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def reseal(folder: Path, config: dict[str, Any]) -> None:
    """Write a configuration into an exported folder, and its hash into the manifest."""
    from regard.interop.folders import hash_file

    (folder / "config.json").write_text(json.dumps(config))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["config.json"] = hash_file(folder / "config.json")
    (folder / "manifest.json").write_text(json.dumps(manifest))
