"""The table of formats, and folders: each is recognised by name, and written completely or not at all."""

import json
from pathlib import Path

import pytest
from plugin_rows import forget_plugins

import regard
from regard.errors import ArgumentError, CommandError, DataError
from regard.interop.formats import (
    FORMATS,
    MANIFEST,
    Format,
    check_model_folder,
    describe_run,
    find_format,
    hash_file,
    is_export,
    model_type,
    read_manifest,
    read_table,
    recognise,
    whole_folder,
    write_manifest,
)
from regard.io import disk


@pytest.fixture
def desk(tmp_path, monkeypatch):
    with forget_plugins(tmp_path, monkeypatch):
        yield tmp_path


def test_a_plugin_adds_a_format(desk):
    row = Format("notes", "a text file", reader="json.dumps", recognise=lambda folder: (folder / "notes.txt").exists())
    regard.register(format=row)
    (desk / "notes.txt").touch()
    assert recognise(desk) is row
    assert find_format("notes", "--format").read("x") == '"x"'
    with pytest.raises(ArgumentError, match="the format 'marian' already exists, from Regard itself"):
        regard.register(format=Format("marian", "another"))


def test_a_folder_that_is_nothing(desk):
    with pytest.raises(DataError, match="an empty folder; expected a folder with .* of marian, m2m100, ctranslate2"):
        recognise(desk)
    for name in ("t5", "bart", "mbart", "whisper", "bert", "nllb-moe"):
        (desk / "config.json").write_text(json.dumps({"model_type": name}))
        with pytest.raises(DataError, match=f'its config.json has the model_type "{name}", which is not read'):
            recognise(desk)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (["config.json"], "its config.json names no model_type"),
        (["model.npz", "vocab.yml"], "a model as Marian itself stores it"),
        (["model.onnx"], "a model in ONNX"),
        (["model.gguf"], "a model in GGUF"),
        (["config.toml", "tokenizer.json"], "a run of Regard already"),
        (["a", "b", "c", "d"], "no config.json and no model.bin in it, but a, b, c …"),
    ],
)
def test_a_folder_of_another_kind_is_named(files, problem, desk):
    for name in files:
        (desk / name).write_text("{}")
    with pytest.raises(DataError, match=problem) as caught:
        recognise(desk)
    assert str(caught.value).count("\n") == 0


def test_a_folder_that_is_two_things(desk):
    (desk / "config.json").write_text('{"model_type": "marian"}')
    assert recognise(desk).name == "marian"
    regard.register(format=Format("all", "any folder", reader="x.y", recognise=lambda folder: True))
    with pytest.raises(DataError, match="recognised as marian and all; say which with --format"):
        recognise(desk)


@pytest.mark.parametrize(
    ("content", "problem"),
    [("{", "cannot be read"), ("[1]", "expected a JSON object"), ("[" * 5000, "cannot be read"), ("\xff", "cannot")],
)
def test_a_config_that_is_no_table(desk, content, problem):
    (desk / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=problem):
        recognise(desk)


def test_what_config_json_says(desk):
    assert model_type(desk) is None
    (desk / "config.json").write_text(json.dumps({"model_type": 3}))
    assert model_type(desk) is None
    with pytest.raises(DataError, match=r"absent\.json: cannot be read: No such file"):
        read_table(desk / "absent.json")


def test_one_way_formats(desk):
    with pytest.raises(CommandError, match="--format: out given, which is only written; expected marian"):
        Format("out", "").read(desk)
    with pytest.raises(CommandError, match="--to: in given, which is only read; expected marian"):
        Format("in", "").write(None, desk)


def test_rows_name_functions_that_are_there():
    for row in FORMATS.values():
        assert row.what
        for name in filter(None, (row.reader, row.writer, row.opener)):
            module, _, function = name.rpartition(".")
            assert callable(getattr(__import__(module, fromlist=[function]), function))


# ---- folders


def test_a_folder_gets_its_name_when_it_is_whole(tmp_path):
    out = tmp_path / "a" / "b"
    with whole_folder(out) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "file").write_text("x")
        assert not out.exists()
    assert (out / "inner" / "file").read_text() == "x"
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "b", "inner", "file"]


def test_an_error_leaves_nothing(tmp_path):
    def fail():
        with whole_folder(tmp_path / "a" / "b") as temporary:
            (temporary / "file").write_text("x")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_a_name_that_is_taken(tmp_path, kind):
    out = tmp_path / "out"
    {"folder": out.mkdir, "file": out.touch, "link": lambda: out.symlink_to("nowhere")}[kind]()
    with pytest.raises(CommandError, match="--out: .*out already exists; give another name"), whole_folder(out):
        raise AssertionError


def test_a_name_that_is_taken_meanwhile(tmp_path):
    def lose():
        with whole_folder(tmp_path / "out"):
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "mine").touch()

    with pytest.raises(CommandError, match="already exists"):
        lose()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine"]


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="--out: .* cannot be written"), whole_folder(tmp_path / "file" / "out"):
        raise AssertionError


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    for name in ("killed", "living"):
        (tmp_path / f".run[1].writing-{name}").mkdir()
        (tmp_path / f".run[1].writing-{name}" / "half").touch()
        (tmp_path / f".run[1].writing-{name}.lock").touch()
    with disk.lock(tmp_path / ".run[1].writing-living.lock"), whole_folder(tmp_path / "run[1]"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".run[1].writing-living", "run[1]"]


def test_a_folder_that_is_being_written_is_locked_under_its_own_name(tmp_path):
    with whole_folder(tmp_path / "run") as one, whole_folder(tmp_path / "run.2") as other:
        assert (tmp_path / f"{one.name}.lock").exists()
        with disk.temporary_folder(tmp_path, ".run.writing-") as third:
            assert one.exists()
            assert other.exists()
        assert not third.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.2"]


def test_a_model_that_is_not_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    how = "run hf download Helsinki-NLP/opus-mt-en-de --local-dir opus-mt-en-de and import that folder"
    for name, problem in {
        "Helsinki-NLP/opus-mt-en-de": how,
        "file": "a file, expected",
        "a/b/c": "no such folder",
    }.items():
        with pytest.raises(CommandError, match=problem):
            check_model_folder(Path(name))


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
    (folder / MANIFEST).write_text(content)
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
