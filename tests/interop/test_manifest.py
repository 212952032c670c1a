"""The manifest of an exported folder: every file is there, and is what it was."""

import json

import pytest

from regard.errors import DataError
from regard.interop.folders import FILE, describe_run, hash_file, is_export, read_manifest, write_manifest


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "exported"
    (folder / "inner").mkdir(parents=True)
    (folder / "model.bin").write_bytes(bytes(range(256)) * 10)
    (folder / "inner" / "pieces.json").write_text("[]")
    write_manifest(folder, format="ctranslate2", run={"step": 3}, facts={"quantize": "int8"}, verification=None)
    return folder


def test_what_is_written_is_read(folder):
    manifest = read_manifest(folder, "ctranslate2")
    assert manifest["facts"] == {"quantize": "int8"}
    assert sorted(manifest["files"]) == ["inner/pieces.json", "model.bin"]
    assert manifest["files"]["model.bin"] == hash_file(folder / "model.bin")
    write_manifest(folder, format="marian", run={}, facts={}, verification={"count": 1})
    assert read_manifest(folder)["verification"] == {"count": 1}, "it may be written again"
    with pytest.raises(DataError, match="exported: exported to marian, expected ctranslate2"):
        read_manifest(folder, "ctranslate2")


@pytest.mark.parametrize("place", [0, 100, 2559])
def test_a_byte_that_was_changed(folder, place):
    content = bytearray((folder / "model.bin").read_bytes())
    content[place] ^= 1
    (folder / "model.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"model\.bin: changed since it was exported; export the run again"):
        read_manifest(folder)


def test_a_file_that_is_missing_or_too_many(folder):
    (folder / "inner" / "pieces.json").unlink()
    with pytest.raises(DataError, match=r"pieces\.json: missing"):
        read_manifest(folder)
    (folder / "inner" / "pieces.json").write_text("[]")
    (folder / "more").touch()
    with pytest.raises(DataError, match=r"more: changed since"):
        read_manifest(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"format": 1}', '{"format": "x", "files": {}}', "null"])
def test_a_manifest_that_is_none(folder, content):
    (folder / FILE).write_text(content)
    with pytest.raises(DataError, match=r"manifest\.json: "):
        read_manifest(folder)


def test_folders_that_are_no_exports(tmp_path, folder):
    assert is_export(folder)
    (folder / "config.toml").touch()
    assert not is_export(folder), "a run is none"
    for each in (folder, tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError, match="not an exported folder, it has no manifest.json; regard export makes one"):
            read_manifest(each)


def test_a_run_is_named_by_the_way_to_it_and_its_hash(tmp_path, folder):
    checkpoint = tmp_path / "runs" / "a" / "checkpoints" / "step-000003"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text(json.dumps({"step": 3}))
    found = describe_run(tmp_path / "runs" / "a", checkpoint, 3, tmp_path / "out" / "exported")
    assert found == {
        "folder": "../runs/a",
        "checkpoint": "step-000003",
        "step": 3,
        **hash_file(checkpoint / "manifest.json"),
    }
    assert str(tmp_path) not in json.dumps(found)
