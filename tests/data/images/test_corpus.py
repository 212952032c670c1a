"""Which pictures are for training and which for validation, and what a run reads; what cannot be used is named."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.images.corpus import hold_out, read, read_pictures, read_test_pictures
from regard.data.settings import DataSettings
from regard.errors import ArgumentError, ConfigError, DataError

NAMES = [f"p{i}.png" for i in range(10)]


@pytest.fixture
def album(tmp_path):
    """A function that makes a folder of pictures and a table, and gives settings for them."""

    def album(rows=None, names=NAMES, table="captions", **more):
        for name in names:
            (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8)).save(tmp_path / "images" / name)
        if rows is not None:
            (tmp_path / "table.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in rows))
            more = {table: str(tmp_path / "table.tsv"), **more}
        return DataSettings(**{"images": str(tmp_path / "images"), "held_out": 0.2, **more})

    return album


def written(path, content):
    path.write_text(content)
    return str(path)


def names(rows):
    return [row.picture for row in rows]


def test_pictures_are_held_out_by_their_names(album):
    captions = [(name, f"caption {i}") for i, name in enumerate(NAMES)]

    def held(captions, **more):
        data = album(captions, **more)
        rows = read(data, "caption")
        assert rows.hold_out
        assert not rows.valid
        hold_out(rows, data)
        assert sorted(names(rows.train) + names(rows.valid)) == sorted(NAMES)
        return sorted(names(rows.valid))

    assert len(held(captions)) == 2
    assert held(captions[::-1]) == held(captions)
    assert held(captions, held_out=0.5, held_out_most=1)[0] in held(captions)
    assert not read(album(captions, held_out=0), "caption").hold_out


def test_several_captions_of_a_picture_stay_together(album):
    rows = read(album([("p0.png", "one"), ("p1.png", "two"), ("p0.png", "three"), ("./p0.png", "four")]), "caption")
    found = {row.picture: row.texts for row in rows.train + rows.valid}
    assert found == {"p0.png": ["one", "three", "four"], "p1.png": ["two"]}


def test_what_is_missing_is_counted_and_named(album):
    captions = [(name, "x") for name in [*NAMES[:6], "gone.png", "p0.png.1", "../table.tsv", "/etc/hosts"]]
    rows = read(album(captions), "caption")
    assert rows.counts["missing"] == 4
    assert rows.counts["unused"] == 4
    assert rows.notes == [
        "pictures that do not exist, skipped: 4 (../table.tsv, /etc/hosts, gone.png, …)",
        "pictures without a caption, skipped: 4 (p6.png, p7.png, p8.png, …)",
    ]


def test_lists_choose(album, tmp_path):
    captions = [(name, "x") for name in NAMES]
    some = written(tmp_path / "train.txt", "p0.png\np1.png\np2.png\nnone.png\n")
    others = written(tmp_path / "valid.txt", "p2.png\np3.png\n")
    rows = read(album(captions, train_list=some, valid_list=others), "caption")
    assert names(rows.train) == ["p0.png", "p1.png"]
    assert names(rows.valid) == ["p2.png", "p3.png"]
    assert rows.notes == [
        "pictures that are listed but have no text or no file, skipped: 1 (none.png)",
        "pictures in both lists, not trained on: 1 (p2.png)",
    ]
    rows = read(album(captions, valid_list=others), "caption")
    assert names(rows.train) == [name for name in NAMES if name not in ("p2.png", "p3.png")]
    rows = read(album(captions, train_list=some), "caption")
    assert sorted(names(rows.train)) == ["p0.png", "p1.png", "p2.png"]
    assert rows.hold_out


def test_validation_may_have_a_file_of_its_own(album, tmp_path):
    also = written(tmp_path / "valid.tsv", "p3.png\tnew\np9.png\tnine\n")
    rows = read(album([(name, "x") for name in NAMES[:4]], valid_captions=also), "caption")
    assert names(rows.train) == ["p0.png", "p1.png", "p2.png"]
    assert {row.picture: row.texts for row in rows.valid} == {"p3.png": ["new"], "p9.png": ["nine"]}
    assert rows.counts["repeated"] == 1


def test_karpathys_splits_are_used(album, tmp_path):
    parts = ["train", "restval", "val", "test", "train"]
    images = [
        {"filename": name, "filepath": "somewhere", "split": part, "sentences": [{"raw": "x"}]}
        for name, part in zip(NAMES, parts, strict=False)
    ]
    path = written(tmp_path / "k.json", json.dumps({"images": images}))
    rows = read(album(captions=path), "caption")
    assert names(rows.train) == ["p0.png", "p1.png", "p4.png"]
    assert names(rows.valid) == ["p2.png"]
    listed = written(tmp_path / "list", "p3.png\n")  # lists come first
    assert names(read(album(captions=path, valid_list=listed), "caption").valid) == ["p3.png"]


def test_folders_are_labels(album):
    rows = read(album(names=["dog/a.png", "dog/deep/b.png", "cat/c.png", "alone.png"]), "classify", labelled=True)
    assert {row.picture: row.texts for row in rows.train + rows.valid} == {
        "dog/a.png": ["dog"],
        "dog/deep/b.png": ["dog"],
        "cat/c.png": ["cat"],
    }
    assert rows.notes == ["pictures in no subfolder that could be the label, skipped: 1 (alone.png)"]


def test_a_file_of_labels(album):
    rows = read(album([("p0.png", "dog"), ("p1.png", "cat")], table="labels"), "classify", labelled=True)
    assert {row.picture: row.texts for row in rows.train + rows.valid} == {"p0.png": ["dog"], "p1.png": ["cat"]}
    assert rows.counts["unused"] == 8


def test_what_leaves_nothing_is_named(album, tmp_path):
    with pytest.raises(DataError, match=r"no picture to train on: pictures that do not exist, skipped: 1 \(x.png\)"):
        read(album([("x.png", "x")]), "caption")
    alone = album([("p0.png", "x")])
    with pytest.raises(DataError, match="one picture is too few to train on and to hold out"):
        hold_out(read(alone, "caption"), alone)
    with pytest.raises(DataError, match=r"list: no picture to validate on: .*skipped: 1 \(x.png\)"):
        read(album([("p0.png", "x")], valid_list=written(tmp_path / "list", "x.png")), "caption")
    with pytest.raises(ConfigError, match=r"data.captions: missing; give the file"):
        read(album(), "caption")
    with pytest.raises(ConfigError, match=r"data.captions: given for task = .classify."):
        read(album([("p0.png", "x")]), "classify", labelled=True)


# ---- of a trained run

DATA = DataSettings(images="x", captions="y", image_size=8)


@pytest.fixture
def pictured(tmp_path):
    for i, name in enumerate(("a.png", "B.PNG")):
        Image.new("RGB", (12, 9), (40 * i, 10, 0)).save(tmp_path / name)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG nothing")
    return tmp_path


def test_files_are_read_and_pixels_are_taken_as_they_are(pictured):
    pixels = torch.zeros(3, 8, 8)
    made, same = read_pictures(DATA, [pictured / "a.png", pixels])
    assert made.shape == (3, 8, 8)
    assert np.asarray(made)[1].mean() == 10
    assert same is pixels


def test_one_path_is_no_list_of_them(pictured):
    with pytest.raises(ArgumentError, match="pictures: one path given, expected a list"):
        next(read_pictures(DATA, pictured / "a.png"))


def test_what_cannot_be_read_is_named(pictured):
    pixels, lost = read_test_pictures(DATA, pictured, ["a.png", "missing.png", "broken.png"])
    assert list(pixels) == ["a.png"]
    assert len(lost) == 2
    assert lost[0] == f"missing.png: no such picture in {pictured}"
    assert "broken.png" in lost[1]
