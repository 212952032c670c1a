"""Which pictures go to training and validation, and which a run reads; unusable ones are named."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data import images
from regard.data import pixels as module
from regard.data.batching import load_pictures
from regard.data.builtin import generate
from regard.data.images import hold_out, prepare_images, read_album, read_pictures, read_test_pictures
from regard.data.pixels import read_picture
from regard.data.settings import DataSettings, TokenizerSettings
from regard.data.tokenizer import END, UNKNOWN, Tokenizers
from regard.errors import ArgumentError, ConfigError, DataError

NAMES = [f"p{i}.png" for i in range(10)]


@pytest.fixture
def album(tmp_path):
    """Return a function that makes a folder of pictures and a table and returns settings for them."""

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
        rows = read_album(data, "caption")
        assert rows.hold_out
        assert not rows.valid
        hold_out(rows, data)
        assert sorted(names(rows.train) + names(rows.valid)) == sorted(NAMES)
        return sorted(names(rows.valid))

    assert len(held(captions)) == 2
    assert held(captions[::-1]) == held(captions)
    assert held(captions, held_out=0.5, held_out_most=1)[0] in held(captions)
    assert not read_album(album(captions, held_out=0), "caption").hold_out


def test_several_captions_of_a_picture_stay_together(album):
    rows = read_album(
        album([("p0.png", "one"), ("p1.png", "two"), ("p0.png", "three"), ("./p0.png", "four")]), "caption"
    )
    found = {row.picture: row.texts for row in rows.train + rows.valid}
    assert found == {"p0.png": ["one", "three", "four"], "p1.png": ["two"]}


def test_what_is_missing_is_counted_and_named(album):
    captions = [(name, "x") for name in [*NAMES[:6], "gone.png", "p0.png.1", "../table.tsv", "/etc/hosts"]]
    rows = read_album(album(captions), "caption")
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
    rows = read_album(album(captions, train_list=some, valid_list=others), "caption")
    assert names(rows.train) == ["p0.png", "p1.png"]
    assert names(rows.valid) == ["p2.png", "p3.png"]
    assert rows.notes == [
        "pictures that are listed but have no text or no file, skipped: 1 (none.png)",
        "pictures in both lists, not trained on: 1 (p2.png)",
    ]
    rows = read_album(album(captions, valid_list=others), "caption")
    assert names(rows.train) == [name for name in NAMES if name not in ("p2.png", "p3.png")]
    rows = read_album(album(captions, train_list=some), "caption")
    assert sorted(names(rows.train)) == ["p0.png", "p1.png", "p2.png"]
    assert rows.hold_out


def test_validation_may_have_a_file_of_its_own(album, tmp_path):
    also = written(tmp_path / "valid.tsv", "p3.png\tnew\np9.png\tnine\n")
    rows = read_album(album([(name, "x") for name in NAMES[:4]], valid_captions=also), "caption")
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
    rows = read_album(album(captions=path), "caption")
    assert names(rows.train) == ["p0.png", "p1.png", "p4.png"]
    assert names(rows.valid) == ["p2.png"]
    listed = written(tmp_path / "list", "p3.png\n")  # lists come first
    assert names(read_album(album(captions=path, valid_list=listed), "caption").valid) == ["p3.png"]


def test_folders_are_labels(album):
    rows = read_album(album(names=["dog/a.png", "dog/deep/b.png", "cat/c.png", "alone.png"]), "classify", labelled=True)
    found = {row.picture: row.texts for row in rows.train + rows.valid}
    assert found == {"dog/a.png": ["dog"], "dog/deep/b.png": ["dog"], "cat/c.png": ["cat"]}
    assert rows.notes == ["pictures in no subfolder that could be the label, skipped: 1 (alone.png)"]


def test_a_file_of_labels(album):
    rows = read_album(album([("p0.png", "dog"), ("p1.png", "cat")], table="labels"), "classify", labelled=True)
    assert {row.picture: row.texts for row in rows.train + rows.valid} == {"p0.png": ["dog"], "p1.png": ["cat"]}
    assert rows.counts["unused"] == 8


def test_what_leaves_nothing_is_named(album, tmp_path):
    with pytest.raises(DataError, match=r"no picture to train on: pictures that do not exist, skipped: 1 \(x.png\)"):
        read_album(album([("x.png", "x")]), "caption")
    alone = album([("p0.png", "x")])
    with pytest.raises(DataError, match="one picture is too few to train on and to hold out"):
        hold_out(read_album(alone, "caption"), alone)
    with pytest.raises(DataError, match=r"list: no picture to validate on: .*skipped: 1 \(x.png\)"):
        read_album(album([("p0.png", "x")], valid_list=written(tmp_path / "list", "x.png")), "caption")
    with pytest.raises(ConfigError, match=r"data.captions: missing; give the file"):
        read_album(album(), "caption")
    with pytest.raises(ConfigError, match=r"data.captions: given for task = .classify."):
        read_album(album([("p0.png", "x")]), "classify", labelled=True)


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


# ---- prepared


WORDS = TokenizerSettings(kind="word")


@pytest.fixture
def captioned(tmp_path):
    """Return a function that makes a folder of distinct pictures with captions and returns settings for them."""

    def captioned(count=12, captions=2, **more):
        folder, rng = tmp_path / "images", np.random.default_rng(3)
        folder.mkdir(exist_ok=True)
        rows = []
        for i in range(count):
            name = f"{i:02d}.png"
            if not (folder / name).exists():
                Image.fromarray(rng.integers(0, 256, (24, 20, 3), dtype=np.uint8)).save(folder / name)
            rows += [f"{name}\tnumber {i} said {'once' if j == 0 else 'again'}\n" for j in range(captions)]
        (tmp_path / "captions.tsv").write_text("".join(rows))
        wanted = {"images": str(folder), "captions": str(tmp_path / "captions.tsv"), "image_size": 16, "held_out": 0.25}
        return DataSettings(**{**wanted, "cache": str(tmp_path / "cache"), "workers": 1, **more})

    return captioned


def texts(prepared, encoded, i):
    """Return a picture's name and its encoded captions."""
    place, tokens = encoded.pair(i)
    cuts = np.split(tokens, np.nonzero(tokens == END)[0])
    decode = prepared.tokenizers.target.decode
    return prepared.pictures.names[int(place[0])], [decode(cut) for cut in cuts]


def test_pictures_and_their_captions(captioned):
    data, said = captioned(), []
    prepared = prepare_images(data, WORDS, "caption", say=said.append)
    (line,) = said
    assert (
        line == "9 pictures with 18 captions; 3 held out for validation (by hash; give --valid-captions to choose them)"
    )
    assert (len(prepared.train), len(prepared.valid), len(prepared.pictures)) == (9, 3, 12)
    assert prepared.tokenizers.joint
    for encoded in (prepared.train, prepared.valid):
        for i in range(len(encoded)):
            name, captions = texts(prepared, encoded, i)
            number = int(name[:2])
            known = [f"number {number} said once", f"number {number} said again"]
            if encoded is prepared.train:
                assert captions == known
            else:  # training did not contain its number
                assert prepared.references[i] == known
                assert prepared.valid_pairs[i] == (name, known[0])
                assert UNKNOWN in encoded.pair(i)[1]
            place = int(encoded.pair(i)[0][0])
            assert np.array_equal(prepared.pictures[[place]][0], read_picture(f"{data.images}/{name}", 16))


def test_the_second_time_it_comes_from_the_cache(captioned, monkeypatch):
    first = prepare_images(captioned(), WORDS, "caption")
    monkeypatch.setattr(module, "read_picture", lambda *_: pytest.fail("decoded again"))
    said = []
    again = prepare_images(captioned(), WORDS, "caption", say=said.append)
    assert said[-1].endswith(", from the cache")
    assert again.hash == first.hash
    assert again.references == first.references
    # Other tokens of the same pictures: no picture is decoded again.
    other = prepare_images(captioned(), TokenizerSettings(kind="character"), "caption")
    assert other.hash != first.hash
    assert other.pictures.folder == first.pictures.folder
    # A run's own tokenizer gives the same hash.
    assert prepare_images(captioned(), None, "caption", tokenizers=first.tokenizers).hash == first.hash


def test_what_cannot_be_read_is_named_counted_and_left_out(captioned, tmp_path):
    data = captioned()
    (tmp_path / "images" / "03.png").write_bytes(b"")
    (tmp_path / "images" / "05.png").write_text("no picture")
    said = []
    prepared = prepare_images(data, WORDS, "caption", say=said.append)
    assert said[0].startswith("pictures that cannot be read, skipped: 2 (03.png: an empty file, expected a picture; 05")
    assert prepared.counts["unreadable"] == 2
    assert len(prepared.train) + len(prepared.valid) == 10
    assert "03.png" not in prepared.pictures.names
    said.clear()
    prepare_images(data, WORDS, "caption", say=said.append)
    assert "cannot be read" in said[0]  # repeated when it comes from the cache


def test_captions_that_are_too_long_are_dropped(captioned, tmp_path):
    data, said = captioned(longest=5, held_out=0.0), []
    with open(data.captions, "a") as file:
        file.write("00.png\tone two three four five six\n12.png\tone two three four five six\n00.png\t\n")
    Image.new("RGB", (9, 9)).save(tmp_path / "images" / "12.png")
    prepared = prepare_images(data, WORDS, "caption", say=said.append)
    assert said == ["12 pictures with 24 captions; dropped 1 blank, 2 longer than 5 tokens; none for validation"]
    assert prepared.counts["wordless"] == 1
    assert len(texts(prepared, prepared.train, 0)[1]) == 2
    with pytest.raises(DataError, match=r"images: no picture is left to train on"):
        prepare_images(captioned(longest=3), WORDS, "caption")


def test_no_picture_that_can_be_read(captioned, tmp_path):
    data = captioned()
    for path in (tmp_path / "images").iterdir():
        path.write_text("no picture")
    with pytest.raises(DataError, match="no text|no picture is left to train on"):
        prepare_images(data, WORDS, "caption")


def test_names_that_are_no_text(captioned, tmp_path):
    """File systems allow arbitrary bytes in a name."""
    data = captioned(count=3)
    folder = os.fsencode(tmp_path / "images")
    for i in range(2):
        os.rename(os.path.join(folder, b"%02d.png" % i), os.path.join(folder, b"\xff%d.png" % i))
    said = []
    with pytest.raises(DataError, match="one picture is too few to train on"):
        prepare_images(data, WORDS, "caption", say=said.append)
    (tmp_path / "images" / "dog").mkdir()
    for i in range(2):
        os.rename(os.path.join(folder, b"\xff%d.png" % i), os.path.join(folder, b"dog", b"\xff%d.png" % i))
    found = DataSettings(images=data.images, image_size=16, cache=data.cache, workers=1)
    prepared = prepare_images(found, None, "classify", labelled=True, say=said.append)
    assert len(prepared.train) == len(prepared.valid) == 1
    assert "".join(said).encode()  # can be printed


def labelled(tmp_path, counts, **more):
    rng = np.random.default_rng(5)
    for label, count in counts.items():
        (tmp_path / "images" / label).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            array = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(array).save(tmp_path / "images" / label / f"{i}.png")
    wanted = {"images": str(tmp_path / "images"), "image_size": 16, "held_out": 0.25, "workers": 1}
    return DataSettings(**{**wanted, "cache": str(tmp_path / "cache"), **more})


def test_labels_are_numbers(tmp_path):
    data, said = labelled(tmp_path, {"dog": 6, "cat": 6}), []
    prepared = prepare_images(data, None, "classify", labelled=True, say=said.append)
    assert prepared.labels == ("cat", "dog")
    assert prepared.tokenizers is None
    (line,) = said
    assert line == "9 pictures with 2 labels; 3 held out for validation (by hash; give data.valid_list to choose them)"
    for encoded in (prepared.train, prepared.valid):
        for i in range(len(encoded)):
            place, label = encoded.pair(i)
            assert prepared.pictures.names[int(place[0])].split("/")[0] == prepared.labels[int(label[0])]
    assert [label for _, label in prepared.valid_pairs] == [each[0] for each in prepared.references]


def test_labels_of_an_earlier_run_stay(tmp_path):
    data, said = labelled(tmp_path, {"dog": 4, "cat": 4, "emu": 4}), []
    prepared = prepare_images(data, None, "classify", labelled=True, say=said.append, labels=("dog", "yak", "cat"))
    assert prepared.labels == ("dog", "yak", "cat")
    assert any("with a label that is unknown, skipped" in line and "(emu)" in line for line in said)
    seen = {prepared.labels[int(prepared.train.pair(i)[1][0])] for i in range(len(prepared.train))}
    assert seen <= {"dog", "cat"}


def test_a_label_not_seen_in_training_is_named(tmp_path):
    data = labelled(tmp_path, {"dog": 4, "emu": 1})
    (tmp_path / "list").write_text("emu/0.png\ndog/0.png\n")
    data, said = replace(data, valid_list=str(tmp_path / "list")), []
    prepared = prepare_images(data, None, "classify", labelled=True, say=said.append)
    assert said[0] == "pictures with a label that no training picture has, skipped: 1 (emu)"
    assert prepared.labels == ("dog",)
    assert len(prepared.valid) == 1


def scenes(tmp_path, **more):
    wanted = {"builtin": "scenes", "count": 12, "held_out": 0.1, "image_size": 40, "cache": str(tmp_path / "cache")}
    return DataSettings(**{**wanted, **more})


def test_scenes_are_drawn_into_the_array(tmp_path):
    prepared = prepare_images(scenes(tmp_path), WORDS, "caption")
    for encoded, split in ((prepared.train, "train"), (prepared.valid, "valid")):
        examples = list(generate("scenes", len(encoded), split=split, size=40))
        assert len(encoded) == (12 if split == "train" else 1)
        for i, example in enumerate(examples):
            assert texts(prepared, encoded, i)[1] == [example.target] or split == "valid"
            place = int(encoded.pair(i)[0][0])
            assert np.array_equal(prepared.pictures[[place]][0], example.picture().transpose(2, 0, 1))
    assert prepared.references == [[example.target] for example in generate("scenes", 1, split="valid")]


def test_questions_are_for_classifiers(tmp_path, monkeypatch):
    data = scenes(tmp_path, builtin_options=("question=which-size",))
    prepared = prepare_images(data, None, "classify", labelled=True)
    assert prepared.labels == ("large", "small")
    monkeypatch.setattr(images, "draw", lambda *_, **__: pytest.fail("drawn again"))
    assert prepare_images(data, None, "classify", labelled=True).hash == prepared.hash


@pytest.mark.parametrize(
    ("more", "task", "said"),
    [
        ({}, "classify", 'data.builtin_options: "question=which-size" expected for task = "classify"'),
        ({"builtin_options": ("question=which-size",)}, "caption", "data.builtin_options: no question expected"),
        ({"builtin_options": ("size=64",)}, "caption", "data.builtin_options: size given; set data.image_size instead"),
        ({"image_size": 24}, "caption", "data.image_size: 24 given, expected at least 32 for scenes"),
        ({"builtin": "copy"}, "caption", 'data.builtin: "copy" given, which has no pictures'),
    ],
)
def test_scenes_that_do_not_go_with_the_task(tmp_path, more, task, said):
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        prepare_images(scenes(tmp_path, **more), WORDS, task, labelled=task == "classify")


def test_a_tokenizer_may_be_given(captioned, tmp_path):
    known = prepare_images(captioned(), WORDS, "caption").tokenizers
    known.save(tmp_path / "mine.json")
    prepared = prepare_images(captioned(), TokenizerSettings(file=str(tmp_path / "mine.json")), "caption")
    assert prepared.tokenizers.hash == Tokenizers.load(tmp_path / "mine.json").hash


def test_room_for_cuts_is_kept(captioned):
    data = captioned(crop=0.25)
    prepared = prepare_images(data, WORDS, "caption")
    assert prepared.pictures.side == 22  # ⌈16 / 0.75⌉
    assert load_pictures(prepared, prepared.train, [0, 1], train=True, data=data).pixels.shape == (2, 3, 16, 16)
