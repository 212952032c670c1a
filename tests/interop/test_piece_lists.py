"""Lists of pieces: in JSON or as lines, shared or one per side."""

import json
import shutil
from pathlib import Path

import pytest
from interop.random_models import TOKENIZERS
from interop.test_ctranslate2_import import refuse, write_folder

from regard.interop.ctranslate2_import import read_ctranslate2

pytest.importorskip("ctranslate2")


@pytest.fixture
def theirs(tmp_path) -> Path:
    write_folder(tmp_path / "given", tied="none")
    return tmp_path / "given"


def test_lists_of_pieces(theirs, tmp_path):
    folder = shutil.copytree(theirs, tmp_path / "folder")
    pieces = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.json").unlink()
    refuse(folder, "source_vocabulary.json: missing, as is shared_vocabulary.json", tmp_path)
    for side in ("source", "target"):
        (folder / f"{side}_vocabulary.txt").write_text("".join(f"{piece}\r\n" for piece in pieces))
    assert read_ctranslate2(folder).tokenizers.source.names == TOKENIZERS.source.names
    (folder / "target_vocabulary.txt").write_bytes(b"\xff\n")
    refuse(folder, "target_vocabulary.txt: byte 0 is not UTF-8", tmp_path)
    (folder / "target_vocabulary.json").write_text('{"a": 1}')
    refuse(folder, "target_vocabulary.json: not a list of pieces", tmp_path)
