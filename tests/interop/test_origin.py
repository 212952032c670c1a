"""Verification compares a run with the folder that it was imported from, if that is still unchanged."""

import json
import shutil

import pytest
from pretrained import marian_folder
from safetensors.torch import load_file

from regard import export_model, import_model
from regard.errors import VerificationError
from regard.interop.export import verify_export
from regard.interop.formats import hash_file

pytest.importorskip("transformers")


def test_an_import_that_went_wrong_is_seen_when_it_is_verified(tmp_path):
    """The run's numbers or weights differ from its folder, or the folder has moved, changed or gone."""
    marian_folder(tmp_path / "mine")
    import_model(tmp_path / "mine", tmp_path / "run")
    export_model(tmp_path / "run", tmp_path / "out", to="marian")
    shutil.copytree(tmp_path / "out", tmp_path / "wrong")
    path, sealed = tmp_path / "wrong" / "config.json", tmp_path / "wrong" / "manifest.json"
    config, manifest = json.loads(path.read_text()), json.loads(sealed.read_text())
    problems = {("pad_token_id", 3): "pad_token_id is 3, expected the number of <pad>"}
    problems[("activation_dropout", 0.5)] = r"config\.json: activation_dropout is 0.5, but .* imported from"
    for (key, value), problem in problems.items():
        path.write_text(json.dumps({**config, key: value}))
        manifest["files"]["config.json"] = hash_file(path)
        sealed.write_text(json.dumps(manifest))
        with pytest.raises(VerificationError, match=problem):
            verify_export(tmp_path / "wrong")
    assert "the same as mine, which it was imported from" in str(verify_export(tmp_path / "out"))
    assert f"{len(load_file(tmp_path / 'out' / 'model.safetensors'))} tensors" in str(verify_export(tmp_path / "out"))
    (tmp_path / "mine" / "source.spm").write_bytes((tmp_path / "mine" / "source.spm").read_bytes() + b"\0\0")
    assert "it has changed since" in str(verify_export(tmp_path / "out"))
    shutil.move(tmp_path / "mine", tmp_path / "elsewhere")
    assert "it is not there any more" in str(verify_export(tmp_path / "out"))
