"""Files of built-in corpora: complete or not there, and read back as they were."""

import pytest

from regard.data.builtin import generate
from regard.data.builtin.files import write
from regard.data.pharaoh import parse_pharaoh
from regard.errors import ArgumentError


def test_what_is_written_is_what_was_generated(tmp_path):
    folder = tmp_path / "deep" / "data"
    done = dict(write("phrasebook", folder, {"train": 40, "valid": 3, "test": 0}, pair="en-fr", seed=4))
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in done)
    assert {path.name: n for path, n in done.items()} == {
        f"{split}.{end}": n
        for split, n in (("train", 40), ("valid", 3))
        for end in ("en", "fr", "align", "en.heads", "fr.heads")
    }
    read = {path.name: path.read_text(encoding="utf-8").split("\n") for path in done}
    for index, example in enumerate(generate("phrasebook", 40, pair="en-fr", seed=4)):
        assert read["train.en"][index] == example.source
        assert read["train.fr"][index] == example.target
        assert tuple(parse_pharaoh(read["train.align"][index])) == example.alignment
        assert tuple(map(int, read["train.en.heads"][index].split())) == example.source_heads
        assert tuple(map(int, read["train.fr.heads"][index].split())) == example.target_heads
    assert all(lines[-1] == "" for lines in read.values())


def test_nothing_is_overwritten_unasked(tmp_path):
    (tmp_path / "valid.target").write_text("mine")
    with pytest.raises(ArgumentError, match="valid.target is there already"):
        write("copy", tmp_path, {"train": 3, "valid": 3})
    assert [path.name for path in tmp_path.iterdir()] == ["valid.target"]
    list(write("copy", tmp_path, {"train": 3, "valid": 3}, force=True))
    assert (tmp_path / "valid.target").read_text() != "mine"
    assert len(list(tmp_path.iterdir())) == 6


def test_a_corpus_that_runs_out_leaves_no_file(tmp_path):
    with pytest.raises(ArgumentError, match="there are"):
        list(write("numbers", tmp_path, {"train": 500}, highest=99))
    assert list(tmp_path.iterdir()) == []
