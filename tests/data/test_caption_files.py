"""Captions and labels in common file formats."""

import gzip
import json

import pytest
from PIL import Image

from regard.data.caption_files import (
    NAMED,
    PictureFiles,
    list_names,
    list_pictures,
    read_captions,
    read_labels,
    read_list,
)
from regard.data.settings import DataSettings
from regard.errors import DataError

WANTED = {"b.jpg": ["a dog runs .", "a brown dog"], "a.jpg": ["two  men"]}


def karpathy(**more):
    images = [
        {"filename": "b.jpg", "split": "restval", "sentences": [{"raw": t, "tokens": []} for t in WANTED["b.jpg"]]},
        {"filename": "a.jpg", "filepath": "val2014", "split": "val", "sentences": [{"raw": "two  men"}], **more},
    ]
    return json.dumps({"images": images, "dataset": "x"})


FORMS = {
    "x.tsv": "b.jpg\ta dog runs .\na.jpg\ttwo  men\nb.jpg\ta brown dog\tmore\n",
    "x.token.txt": "b.jpg#0\ta dog runs .\nb.jpg#1\ta brown dog\na.jpg#0\ttwo  men\n",
    "windows.tsv": "\ufeffb.jpg\ta dog runs .\r\n\r\na.jpg\ttwo  men\r\nb.jpg\ta brown dog\r\n",
    "x.json": karpathy(),
    "spaced.json": "\n " + karpathy(),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_says_the_same(tmp_path, name, packed):
    content = FORMS[name].encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    found = read_captions(tmp_path / name)
    second = "val2014/a.jpg" if "json" in name else "a.jpg"
    assert found.captions == {"b.jpg": ["a dog runs .", "a brown dog"], second: ["two men"]}
    assert found.splits == ({"b.jpg": "train", second: "valid"} if "json" in name else {})


def test_blank_captions_are_counted(tmp_path):
    (tmp_path / "x.tsv").write_text("a.jpg\t\na.jpg\t  \nb.jpg\tyes\n\n")
    found = read_captions(tmp_path / "x.tsv")
    assert found.captions == {"b.jpg": ["yes"]}
    assert found.blank == 2


def test_flickr_names_with_another_dot_stay(tmp_path):
    (tmp_path / "x").write_text("2258277193_586949ec62.jpg.1#0\tpeople wait\n")
    assert list(read_captions(tmp_path / "x").captions) == ["2258277193_586949ec62.jpg.1"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a.jpg a caption\n", "line 1: 1 column, expected at least 2"),
        ('{"images": [', "not valid JSON"),
        ('{"pictures": []}', 'no list under "images"'),
        ("[]", 'no list under "images"'),
        ('{"images": [3]}', 'images[0]: no text under "filename"'),
        ('{"images": [{"filename": "a"}]}', 'images[0]: no list under "sentences"'),
        ('{"images": [{"filename": "a", "sentences": [{"tokens": []}]}]}', 'sentences: no text under "raw"'),
        ('{"images": [{"filename": "a", "split": "dev", "sentences": []}]}', '"dev" given under "split"'),
        ("[" * 5000, "not valid JSON"),
        (b"a.jpg\t\xff\n", "is not UTF-8"),
        (gzip.compress(b"a.jpg\tx\n" * 5000, mtime=0)[:60], "broken gzip"),
    ],
)
def test_faults_are_named(tmp_path, content, said):
    path = tmp_path / "x"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as error:
        read_captions(path)
    assert str(error.value).startswith(str(path))
    assert said in str(error.value)


@pytest.mark.parametrize("read", [read_captions, read_labels, read_list])
def test_files_that_are_none_are_named(tmp_path, read):
    with pytest.raises(DataError, match="nothing: no such file"):
        read(tmp_path / "nothing")
    with pytest.raises(DataError, match="a folder given"):
        read(tmp_path)


def test_labels(tmp_path):
    path = tmp_path / "labels.tsv"
    path.write_text("a.jpg\tdog\nsub/b.jpg\tred cat\n\na.jpg\tdog\n")
    assert read_labels(path) == {"a.jpg": "dog", "sub/b.jpg": "red cat"}
    path.write_text("a.jpg\tdog\na.jpg\tcat\n")
    with pytest.raises(DataError, match='line 2: a.jpg is "cat", but "dog" on an earlier line'):
        read_labels(path)
    path.write_text("a.jpg\t \n")
    with pytest.raises(DataError, match="line 1: a.jpg has no label"):
        read_labels(path)


def test_one_odd_line_or_picture_is_left_out_and_said(tmp_path):
    path, said = tmp_path / "x", []
    path.write_text("a.jpg\tx\nb.jpg\nc.jpg\ty\n")
    assert read_captions(path, said.append).captions == {"a.jpg": ["x"], "c.jpg": ["y"]}
    assert said.pop() == f"{path}: a line that cannot be read counts as blank: line 2: 1 column, expected at least 2"
    whole = json.loads(karpathy())
    for odd, why in (
        ({"filename": 3}, 'no text under "filename"'),
        ({"filename": "z"}, 'no list under "sentences"'),
        ({"filename": "z", "sentences": [{"raw": None}]}, 'sentences: no text under "raw"'),
        ({"filename": "z", "sentences": [], "split": "dev"}, '"dev" given under "split"'),
        (None, 'no text under "filename"'),
    ):
        path.write_text(json.dumps({"images": [*whole["images"], odd]}))
        assert read_captions(path, said.append).captions.keys() == {"b.jpg", "val2014/a.jpg"}
        expected = f"{path}: 1 of 3 pictures cannot be read and are skipped; the first is images[2]: {why}"
        assert said.pop().startswith(expected)
    path.write_text("a.jpg\tdog\nb.jpg\tcat\na.jpg\tcat\nc.jpg\t\nd.jpg\n")
    assert read_labels(path, said.append) == {"b.jpg": "cat"}
    assert "line 5: 1 column" in said[0]
    assert said[1] == (
        f"{path}: 2 pictures without exactly one label are skipped; the first is "
        'line 3: a.jpg is "cat", but "dog" on an earlier line'
    )


def test_a_list_of_names(tmp_path):
    (tmp_path / "x").write_text("a.jpg\n\n b.jpg \r\na.jpg\n")
    assert read_list(tmp_path / "x") == {"a.jpg", "b.jpg"}


def test_pictures_in_folders_are_found(tmp_path):
    for name in ("b.JPG", "a.png", "deep/er/c.jpeg", "notes.txt", "jpg", "deep/.hidden.gif"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x" * len(name))
    found = list_pictures(tmp_path)
    assert list(found) == ["a.png", "b.JPG", "deep/.hidden.gif", "deep/er/c.jpeg"]
    assert found["a.png"][0] == 5  # bytes
    with pytest.raises(DataError, match="none: no such folder, expected a folder of pictures"):
        list_pictures(tmp_path / "none")
    with pytest.raises(DataError, match=r"notes.txt: not a folder"):
        list_pictures(tmp_path / "notes.txt")


def test_the_first_few_are_named():
    assert list_names(["c", "a", "b"]) == "a, b, c"
    assert list_names("dcba") == "a, b, c, …"


def test_a_link_that_leads_back_is_no_trap(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.png").write_text("x")
    (tmp_path / "deep" / "again").symlink_to(tmp_path / "deep")
    (tmp_path / "whole").symlink_to(tmp_path)
    assert list(list_pictures(tmp_path)) == ["deep/a.png"]


def test_pictures_that_cannot_be_read_are_named_and_counted(tmp_path):
    for number in range(NAMED + 3):
        (tmp_path / f"bad{number:02}.png").write_bytes(b"none")
    for name in ("a.png", "z.png"):
        Image.new("RGB", (9, 7)).save(tmp_path / name)
    said = list[str]()
    files, data = PictureFiles([str(tmp_path)], said.append), DataSettings(image_size=8, crop=0.0)
    found = list(files.read(data))
    assert [path for path, _ in found] == [str(tmp_path / name) for name in ("a.png", "z.png")]
    assert {pixels.shape for _, pixels in found} == {(3, 8, 8)}
    assert not files.single
    assert len(said) == NAMED
    files.end()
    assert said[-1] == f"{NAMED + 3} of {NAMED + 5} pictures cannot be read and are skipped"


def test_one_picture_that_cannot_be_read_is_an_error(tmp_path):
    path = tmp_path / "bad.png"
    path.write_bytes(b"none")
    files = PictureFiles([str(path)])
    assert files.single
    with pytest.raises(DataError, match="bad.png"):
        list(files.read(DataSettings()))
    files = PictureFiles([str(path), str(path)])
    assert list(files.read(DataSettings())) == []
    with pytest.raises(DataError, match="^none of 2 pictures can be read$"):
        files.end()
