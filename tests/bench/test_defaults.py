"""The plain command on corpora of a few lines: the files that it accepts, and scores beside the majority baseline."""

import gzip
import tarfile
from types import SimpleNamespace

import pytest

from regard_bench import defaults

FILES = {
    f"{path}.gz": text
    for part, flickr in (("train", "train"), ("test", "test_2016_flickr"))
    for path, text in {
        **{f"multi30k/{flickr}.{side}": f"{side} {part}\n" for side in ("en", "de")},
        f"cmudict/{part}.tsv": "G O\tG OW\n",
        f"inflection/deu.{part}.tsv": "zu Haus\tzu Haus\tN;SG\n",
        **{f"scan/{own}.{part}.txt": "IN: walk OUT: I_WALK\n" for own in ("simple", "length")},
        **{f"europarl/{part}.{side}": f"{side}\n" for side in ("en", "de")},
        f"imdb/{part}.tsv": "pos\t9\t1\tA good film.\n",
    }.items()
}
CAPTIONS = b"a.jpg#0\tA dog .\na.jpg#1\tOne dog .\nb.jpg#0\tA cat .\n"


@pytest.fixture
def data(tmp_path):
    """Return a folder of prepared corpora."""
    home = tmp_path / "given"
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(gzip.compress(text.encode()))
    flickr = home / "flickr8k"
    flickr.mkdir()
    (flickr / "Flickr8k.token.txt.gz").write_bytes(gzip.compress(CAPTIONS))
    for part, name in (("train", "a.jpg"), ("test", "b.jpg")):
        (flickr / f"Flickr_8k.{part}Images.txt").write_text(f"{name}\n")
        (tmp_path / name).write_bytes(name.encode())
    with tarfile.open(flickr / "images.tar", "w") as archive:
        for name in ("a.jpg", "b.jpg"):
            archive.add(tmp_path / name, f"Images/{name}")
    defaults.prepare(home, tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("name", defaults.CORPORA)
def test_the_plain_command_finds_its_files(data, name):
    words = defaults.plain(name, data)
    for path in words[1::2]:
        assert path.startswith(str(data / name))
        assert defaults.Path(path).exists()
    assert {word[:2] for word in words[::2]} == {"--"}


def test_files_are_those_of_the_owners(data):
    assert (data / "multi30k-de-en/train.source").read_text() == "de train\n"
    assert (data / "inflection/test.source").read_text() == "z u _ H a u s <N> <SG>\n"
    assert (data / "scan-length/test.target").read_text() == "I_WALK\n"
    assert (data / "imdb/train.tsv").read_text() == "pos\tA good film.\n"
    assert (data / "flickr8k/train.tsv").read_text() == "a.jpg\tA dog .\na.jpg\tOne dog .\n"
    assert (data / "flickr8k/test/b.jpg").read_bytes() == b"b.jpg"


def test_a_run_is_measured_beside_the_most_frequent_answer(data, monkeypatch):
    run = SimpleNamespace(translate=lambda texts, **options: ["G OW"] * len(texts))
    monkeypatch.setattr("regard.load", lambda folder, device: run)
    assert defaults.evaluate_run("cmudict", data, data, "cpu") == {"score": 100.0, "floor": 100.0}
    run.translate = lambda texts, **options: ["G"] * len(texts)
    assert defaults.evaluate_run("cmudict", data, data, "cpu") == {"score": 0.0, "floor": 100.0}
    run.classify = lambda texts: [SimpleNamespace(label="neg") for _ in texts]
    assert defaults.evaluate_run("imdb", data, data, "cpu") == {"score": 0.0, "floor": 100.0}
