"""The table of formats: rows by name, folders recognised, what is missing named."""

import json

import pytest
from plugin_rows import forget_plugins

import regard
from regard.errors import ArgumentError, CommandError, DataError, MissingExtraError
from regard.interop.formats import FORMATS, Format, find_format, model_type, read_table, recognise


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
        (["model.npz", "vocab.yml"], "no config.json and no model.bin in it, but model.npz, vocab.yml"),
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


def test_a_missing_package_is_named_with_its_extra(desk):
    (desk / "needy.py").write_text("import absent_package.part\n")
    row = Format("needy", "", reader="needy.read", extra="import")
    with pytest.raises(MissingExtraError, match=r"absent_package is not installed; .*regard\[import\]"):
        pytest.MonkeyPatch().syspath_prepend(str(desk)) or row.read(desk)


def test_rows_name_functions_that_are_there():
    for row in FORMATS.values():
        assert row.what
        for name in filter(None, (row.reader, row.writer, row.opener)):
            module, _, function = name.rpartition(".")
            assert callable(getattr(__import__(module, fromlist=[function]), function))
