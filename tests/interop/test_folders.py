"""Folders to read are there; folders to write are whole, or not there at all."""

from pathlib import Path

import pytest

from regard.errors import CommandError
from regard.interop.folders import check_model_folder, whole_folder
from regard.io import disk


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
