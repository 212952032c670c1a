"""From folders of pictures or drawn scenes to a prepared corpus, and from the cache the second time."""

import os

import numpy as np
import pytest
from PIL import Image

from regard.data import builtin_files
from regard.data.builtin import generate
from regard.data.images import pixels as module
from regard.data.images.batching import load_pictures
from regard.data.images.corpus import prepare_images
from regard.data.images.pixels import read_picture
from regard.data.settings import DataSettings, TokenizerSettings
from regard.data.tokenizer import END, UNKNOWN, Tokenizers
from regard.errors import ConfigError, DataError

WORDS = TokenizerSettings(kind="word")


@pytest.fixture
def album(tmp_path):
    """A function that makes a folder of different pictures with captions, and gives settings for them."""

    def album(count=12, captions=2, **more):
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

    return album


def texts(prepared, encoded, i):
    """A picture's name, and its captions as they are encoded."""
    place, tokens = encoded.pair(i)
    cuts = np.split(tokens, np.nonzero(tokens == END)[0])
    decode = prepared.tokenizers.target.decode
    return prepared.pictures.names[int(place[0])], [decode(cut) for cut in cuts]


def test_pictures_and_their_captions(album):
    data, said = album(), []
    prepared = prepare_images(data, WORDS, "caption", say=said.append)
    assert said == [
        "9 pictures with 18 captions; 3 held out for validation (by hash; give --valid-captions to choose them)"
    ]
    assert (len(prepared.train), len(prepared.valid), len(prepared.pictures)) == (9, 3, 12)
    assert prepared.tokenizers.joint
    for encoded in (prepared.train, prepared.valid):
        for i in range(len(encoded)):
            name, captions = texts(prepared, encoded, i)
            number = int(name[:2])
            known = [f"number {number} said once", f"number {number} said again"]
            if encoded is prepared.train:
                assert captions == known
            else:  # its number was not seen in training
                assert prepared.references[i] == known
                assert prepared.valid_pairs[i] == (name, known[0])
                assert UNKNOWN in encoded.pair(i)[1]
            place = int(encoded.pair(i)[0][0])
            assert np.array_equal(prepared.pictures[[place]][0], read_picture(f"{data.images}/{name}", 16))


def test_the_second_time_it_comes_from_the_cache(album, monkeypatch):
    first = prepare_images(album(), WORDS, "caption")
    monkeypatch.setattr(module, "read_picture", lambda *_: pytest.fail("decoded again"))
    said = []
    again = prepare_images(album(), WORDS, "caption", say=said.append)
    assert said[-1].endswith(", from the cache")
    assert again.hash == first.hash
    assert again.references == first.references
    # Other tokens of the same pictures: nothing is decoded again.
    other = prepare_images(album(), TokenizerSettings(kind="character"), "caption")
    assert other.hash != first.hash
    assert other.pictures.folder == first.pictures.folder
    # A run's own tokenizer leads to the same.
    assert prepare_images(album(), None, "caption", tokenizers=first.tokenizers).hash == first.hash


def test_what_cannot_be_read_is_named_counted_and_left_out(album, tmp_path):
    data = album()
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
    assert "cannot be read" in said[0]  # it is said again when it comes from the cache


def test_captions_that_are_too_long_are_dropped(album, tmp_path):
    data, said = album(longest=5, held_out=0.0), []
    with open(data.captions, "a") as file:
        file.write("00.png\tone two three four five six\n12.png\tone two three four five six\n00.png\t\n")
    Image.new("RGB", (9, 9)).save(tmp_path / "images" / "12.png")
    prepared = prepare_images(data, WORDS, "caption", say=said.append)
    assert said == ["12 pictures with 24 captions; dropped 1 blank, 2 longer than 5 tokens; none for validation"]
    assert prepared.counts["wordless"] == 1
    assert len(texts(prepared, prepared.train, 0)[1]) == 2
    with pytest.raises(DataError, match=r"images: no picture is left to train on"):
        prepare_images(album(longest=3), WORDS, "caption")


def test_no_picture_that_can_be_read(album, tmp_path):
    data = album()
    for path in (tmp_path / "images").iterdir():
        path.write_text("no picture")
    with pytest.raises(DataError, match="no text|no picture is left to train on"):
        prepare_images(data, WORDS, "caption")


def test_names_that_are_no_text(album, tmp_path):
    """File systems allow any bytes in a name."""
    data = album(count=3)
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
    said = []
    prepared = prepare_images(
        labelled(tmp_path, {"dog": 6, "cat": 6}), None, "classify", labelled=True, say=said.append
    )
    assert prepared.labels == ("cat", "dog")
    assert prepared.tokenizers is None
    assert said == [
        "9 pictures with 2 labels; 3 held out for validation (by hash; give data.valid_list to choose them)"
    ]
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
    said = []
    prepared = prepare_images(
        DataSettings(images=data.images, valid_list=str(tmp_path / "list"), cache=data.cache, image_size=16, workers=1),
        None,
        "classify",
        labelled=True,
        say=said.append,
    )
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
    monkeypatch.setattr(builtin_files, "draw", lambda *_, **__: pytest.fail("drawn again"))
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


def test_a_tokenizer_may_be_given(album, tmp_path):
    known = prepare_images(album(), WORDS, "caption").tokenizers
    known.save(tmp_path / "mine.json")
    prepared = prepare_images(album(), TokenizerSettings(file=str(tmp_path / "mine.json")), "caption")
    assert prepared.tokenizers.hash == Tokenizers.load(tmp_path / "mine.json").hash


def test_room_for_cuts_is_kept(album):
    data = album(crop=0.25)
    prepared = prepare_images(data, WORDS, "caption")
    assert prepared.pictures.side == 22  # ⌈16 / 0.75⌉
    assert load_pictures(prepared, prepared.train, [0, 1], train=True, data=data).pixels.shape == (2, 3, 16, 16)
