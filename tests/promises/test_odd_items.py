"""One odd item does not stop the rest: it is skipped, counted, and reported once with the first example.

This covers pictures, folders, captions, labels, documents and links. If all items are odd, one sentence says so.
A name that is not UTF-8 stays as it is in the output.
"""

import json
import os
import shutil
import socket
import zlib
from pathlib import Path

import pytest
from child import regard
from PIL import Image

from regard.data import DataSettings, TokenizerSettings, caption_files, document_texts, prepare_images
from regard.errors import DataError

pytestmark = pytest.mark.unchecked  # typer uses other classes than it documents
WORD = TokenizerSettings(kind="word")
ON_CPU = ("--device", "cpu")
NOT_UTF8 = os.fsdecode(b"caf\xe9.png")


@pytest.fixture(scope="module")
def furnished(furnish) -> Path:
    """Create runs that caption and classify pictures, one that translates, and one that classifies documents."""
    return furnish(captions="captioner", questions="convnet", run="transformer", reviews="han")


@pytest.fixture
def album(furnished, tmp_path) -> Path:
    """Create pictures with captions, with all kinds of odd files between them."""
    shutil.copytree(furnished / "data" / "captioned", tmp_path / "album")
    folder = tmp_path / "album" / "pictures"
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder / "ring").symlink_to("ring")
    (folder / "dangling.png").symlink_to("nowhere")
    (folder / "itself").symlink_to(".")
    (folder / "deep").mkdir()
    (folder / "deep" / "up").symlink_to("..")
    (folder / "empty.png").touch()
    (folder / "noise.jpg").write_bytes(b"no picture")
    (folder / "half.png").write_bytes((folder / "1.png").read_bytes()[:60])
    (folder / "called.png").mkdir()
    os.mkfifo(folder / "pipe.jpg")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(folder)  # the path of a socket must be short
        listening.bind("socket.jpg")
        os.chdir(here)
    bomb(folder / "bomb.png")
    for name in (NOT_UTF8, "new\nline.png"):
        shutil.copy(folder / "1.png", folder / name)
    return tmp_path / "album"


UNREADABLE = ["empty.png", "noise.jpg", "half.png", "bomb.png"]  # files that are not pictures


def bomb(path: Path) -> None:
    """Write a picture whose header claims 10^10 pixels."""
    Image.new("1", (8, 8)).save(path)
    data = bytearray(path.read_bytes())
    data[16:24] = (100_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    path.write_bytes(data)


def test_a_folder_is_walked_whatever_is_in_it(album):
    said = []
    found = caption_files.list_pictures(album / "pictures", said.append)
    assert {"0.png", NOT_UTF8, "new\nline.png", *UNREADABLE} <= found.keys()
    assert not {"loop.jpg", "dangling.png", "pipe.jpg", "socket.jpg", "called.png"} & found.keys()
    assert not [name for name in found if "/" in name], "a link that leads back was followed"
    (line,) = said
    expected = "5 (dangling.png: a link that leads nowhere; loop.jpg: Too many levels of symbolic links; "
    assert line.startswith(f"skipped in {album / 'pictures'}: {expected}")
    assert caption_files.pictures_in([str(album / "pictures")]) == [str(album / "pictures" / name) for name in found]


def test_a_folder_as_deep_as_a_name_may_be(tmp_path):
    here, depth = Path.cwd(), 0
    os.chdir(tmp_path)
    try:
        for depth in range(1, 1200):  # noqa: B007
            os.mkdir("d")
            os.chdir("d")
        Path("a.png").touch()
    finally:
        os.chdir(here)
    assert list(caption_files.list_pictures(tmp_path)) == ["d/" * depth + "a.png"]
    os.chdir(tmp_path)  # rmtree would recurse too deep
    try:
        for _ in range(depth):
            os.chdir("d")
        Path("a.png").unlink()
        for _ in range(depth):
            os.chdir("..")
            os.rmdir("d")
    finally:
        os.chdir(here)


def test_captions_and_pictures_that_are_odd_are_left_out(album, tmp_path):
    with open(album / "captions.tsv", "a") as file:
        file.write("missing.png\ta thing\nno tab\nloop.jpg\ta loop\npipe.jpg\ta pipe\n7.png\t \n")
        file.write("".join(f"{name}\ta thing\n" for name in UNREADABLE))
    data = DataSettings(
        images=str(album / "pictures"),
        captions=str(album / "captions.tsv"),
        image_size=32,
        held_out=0.0,
        workers=1,
        cache=str(tmp_path / "cache"),
    )
    said = []
    prepared = prepare_images(data, WORD, say=said.append)
    assert len(prepared.train) == 24
    text = "\n".join(said)
    assert "a line that cannot be read counts as blank: line 26: 1 column, expected at least 2" in text
    assert "pictures that do not exist, skipped: 3 (loop.jpg, missing.png, pipe.jpg)" in text
    assert "pictures without a caption, skipped: 2 (caf?.png, new?line.png)" in text
    assert "pictures that cannot be read, skipped: 4 (bomb.png: more than " in text
    assert "dropped 1 blank" in text
    again = []
    prepare_images(data, WORD, say=again.append)
    assert again == [*said[:-1], said[-1] + ", from the cache"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_captioning_goes_on(furnished, album, form):
    json_form = ["--json"] * (form == "json")
    shown = regard(
        "caption", furnished / "captions", album / "pictures", "--longest", 2, "--beam", 1, *ON_CPU, *json_form
    )
    assert shown.status == 0
    lines = shown.stdout.split("\n")[:-1]
    assert len(lines) == 26
    assert "skipped in" in shown.stderr
    assert shown.stderr.endswith("regard: 4 of 30 pictures cannot be read and are skipped\n")
    if form == "json":
        pictures = [json.loads(line)["picture"] for line in lines]
        assert str(album / "pictures" / NOT_UTF8) in pictures
        assert str(album / "pictures" / "new\nline.png") in pictures
    else:
        assert str(album / "pictures" / NOT_UTF8) in [line.split("\t")[0] for line in lines]
    for name in UNREADABLE[:1]:  # alone, an unreadable file is an error
        shown = regard("caption", furnished / "captions", album / "pictures" / name, *ON_CPU)
        assert (shown.status, shown.stderr.count("\n")) == (2, 1)


def test_looking_at_odd_names(furnished, album, tmp_path):
    odd = [album / "pictures" / name for name in (NOT_UTF8, "new\nline.png")]
    shown = regard("look", furnished / "captions", *odd, "--longest", 2, *ON_CPU, "--out", tmp_path / "pages")
    assert (shown.status, shown.stderr) == (0, "")
    assert len(list((tmp_path / "pages").iterdir())) == 2


def test_folders_with_odd_names_are_labels(album, tmp_path):
    """Two names that are not UTF-8 are two labels."""
    names = [f"{i}.png" for i in range(24)]
    for i, name in enumerate(names):
        folder = os.fsencode(tmp_path / "sorted") + (b"/caf\xe9", b"/caf\xe8", b"/tea")[i % 3]
        os.makedirs(folder, exist_ok=True)
        shutil.copy(album / "pictures" / name, os.fsdecode(folder))
    cut = [f"--set={each}" for each in ("model.channels=8", "model.stages=2", "model.blocks=1", "data.image_size=32")]
    cut += ["--set=training.steps=1", "--set=training.device=cpu", f"--set=data.cache={tmp_path / 'cache'}"]
    shown = regard("train", "--images", tmp_path / "sorted", "--out", tmp_path / "run", "--set=data.workers=1", *cut)
    assert shown.status == 0, shown.stderr
    assert "labels: 3: caf\\xe8, caf\\xe9, tea" in shown.stderr
    shown = regard("eval", tmp_path / "run", "--images", tmp_path / "sorted", "--json", *ON_CPU)
    assert json.loads(shown.stdout)["labels"].keys() == {"caf\\xe8", "caf\\xe9", "tea"}


def test_nothing_but_odd_pictures_is_one_sentence(furnished, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "loop.png").symlink_to("loop.png")
    shown = regard("caption", furnished / "captions", tmp_path / "pictures", *ON_CPU)
    assert shown.status == 2
    assert shown.stderr.splitlines()[-1].startswith(f"regard: {tmp_path / 'pictures'}: contains no pictures")
    for name in ("a.png", "b.png"):
        (tmp_path / "pictures" / name).touch()
    shown = regard("caption", furnished / "captions", tmp_path / "pictures", *ON_CPU)
    assert shown.status == 2
    assert shown.stderr.splitlines()[-1] == "regard: none of 2 pictures can be read"


GOOD = {"tsv": ["good\tfine food\n", "bad\tnot nice\n"], "jsonl": []}
GOOD["jsonl"] = [
    json.dumps(dict(zip(("label", "text"), line.strip().split("\t"), strict=True))) + "\n" for line in GOOD["tsv"]
]
ODD = {
    "tsv": ["no tab\n"],
    "jsonl": [
        "{\n",
        "[]\n",
        '{"label": "good"}\n',
        '{"label": "good", "text": 3}\n',
        "9" * 5_000 + "\n",
        "[" * 9_999 + "\n",
    ],
}


@pytest.mark.parametrize(("form", "odd"), [(form, odd) for form, each in ODD.items() for odd in each])
def test_a_document_that_is_odd_is_left_out(tmp_path, form, odd):
    """An odd line counts as blank, and in some forms as a document without a label."""
    path, data = tmp_path / f"a.{form}", {"held_out": 0.0, "cache": str(tmp_path / "cache")}
    unlabelled = "\tno label\n" if form == "tsv" else '{"label": "", "text": "no label"}\n'
    path.write_text("".join([*GOOD[form] * 5, odd, unlabelled, odd]))
    said = []
    prepared = document_texts.prepare_documents(DataSettings(documents=str(path), **data), WORD, say=said.append)
    assert len(prepared.train) == 10
    assert said[0].startswith(f"{path}: 2 lines that cannot be read count as blank; the first is line 11: ")
    assert "1 without a label" in said[1] or "3 without a label" in said[1]
    path.write_text(odd * 3)
    with pytest.raises(DataError) as error:
        document_texts.prepare_documents(DataSettings(documents=str(path), **data), WORD)
    assert str(error.value).startswith(f"{path}, line 1: ")


def test_measuring_documents_goes_on(furnished, tmp_path):
    lines = (furnished / "data" / "documents" / "reviews.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines[:4]]
    path = tmp_path / "test.tsv"
    path.write_text("".join(f"{label}\t{text}\n" for label, text in rows) + "no tab\n\tno label\nodd\tlabel\n")
    shown = regard("eval", furnished / "reviews", "--documents", path, "--json", *ON_CPU)
    assert json.loads(shown.stdout)["documents"] == 4
    for said in (
        "line 5: 1 column",
        "1 documents have no label: ",
        "1 of 5 have a label that did not occur in training: odd",
    ):
        assert said in shown.stderr


@pytest.mark.parametrize("odd", ["9" * 5_000 + "-0", "0-" + "9" * 5_000, "x", "0=0"], ids=["long", "longer", "x", "="])
def test_one_odd_link_does_not_stop_an_alignment(furnished, tmp_path, odd):
    texts = "1 2\n3 4\n5 6\n"
    (tmp_path / "text").write_text(texts)
    (tmp_path / "gold").write_text(f"0-0\n1-1 {odd}\n0-1\n")
    given = ("--source", tmp_path / "text", "--target", tmp_path / "text", "--gold", tmp_path / "gold", *ON_CPU)
    shown = regard("align", furnished / "run", *given)
    assert shown.status == 0, shown.stderr
    assert shown.stdout.count("\n") >= 3
    assert shown.stderr.startswith(f"regard: {tmp_path / 'gold'}, line 2: ")
    assert max(map(len, shown.stderr.splitlines())) < 300
    (tmp_path / "gold").write_text(f"{odd}\n" * 3)
    shown = regard("align", furnished / "run", *given)
    assert (shown.status, shown.stdout) == (2, "")
    assert shown.stderr.startswith(f"regard: {tmp_path / 'gold'}, line 1: ")
    assert shown.stderr.count("\n") == 1


# Every command that writes a file or a folder, with the option that sets its path.
WRITERS = {
    "translate": ("run", "text", "--out"),
    "score": ("run", "--source", "text", "--target", "text", "--out"),
    "align": ("run", "--source", "text", "--target", "text", "--out"),
    "caption": ("captions", "pictures", "--out"),
    "classify": ("reviews", "text", "--out"),
    "sample": ("run", "--out"),
    "eval": ("run", "--source", "text", "--reference", "text", "--out"),
    "look": ("run", "1 2", "--out"),
    "data": ("phrasebook", "--count", "2", "--valid", "0", "--test", "0", "--out"),
    "train": ("--source", "text", "--target", "text", "--out"),
    "demo": ("--steps", "1", "--out"),
    "study": ("scaling", "--quick", "--out"),
}


@pytest.mark.parametrize("command", WRITERS)
def test_a_loop_of_links_to_write_to_is_one_sentence(furnished, monkeypatch, command):
    monkeypatch.chdir(furnished)
    Path("text").write_text("1 2\n3 4\n")
    for name in ("loop", "loop.png"):
        Path(name).unlink(missing_ok=True)
        Path(name).symlink_to(name)
    shown = regard(command, *WRITERS[command], "loop")
    assert shown.status == 2, shown
    assert shown.stderr.count("\n") == 1, shown.stderr
    assert "loop" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert Path("loop").is_symlink()
