"""All pictures in one array: decoded by other processes, kept, found again, and decoded anew where it is damaged."""

import os
import pickle

import numpy as np
import pytest
import whose
from conftest import SEED
from PIL import Image

from regard.data.images import cache
from regard.data.images.cache import Pixels, decode, keep
from regard.data.images.decode import read_picture


@pytest.fixture
def album(tmp_path):
    """A folder of pictures that are all different, and two files that are none."""
    rng, folder = np.random.default_rng(SEED), tmp_path / "images"
    folder.mkdir()
    for i in range(9):
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    (folder / "4.png").write_text("no picture")
    (folder / "7.png").write_bytes((folder / "6.png").read_bytes()[:200])
    return folder


def names(folder):
    return sorted(os.listdir(folder))


def test_pictures_come_in_order_with_the_faults_among_them(album):
    found = list(decode(str(album), names(album), 8, workers=1))
    assert [each.name for each in found] == names(album)
    for each in found:
        if each.name in ("4.png", "7.png"):
            assert each.pixels is None
            assert each.problem.startswith(f"{each.name}: ")  # without the folder
        else:
            assert np.array_equal(each.pixels, read_picture(album / each.name, 8))


def test_other_processes_decode(album, monkeypatch):
    monkeypatch.setattr(cache, "WORTH", -1.0)
    monkeypatch.setattr(cache, "CHUNK", 1)
    alone = list(decode(str(album), names(album), 8, workers=1))
    together = list(decode(str(album), names(album), 8, workers=2))
    assert [(each.name, each.problem) for each in together] == [(each.name, each.problem) for each in alone]
    for one, other in zip(alone, together, strict=True):
        assert (one.pixels is None and other.pixels is None) or np.array_equal(one.pixels, other.pixels)


def test_the_processes_are_others(album, monkeypatch):
    """Each chunk is decoded by a process that is not this one, and by more than one in all."""
    monkeypatch.setattr(cache, "WORTH", -1.0)
    monkeypatch.setattr(cache, "CHUNK", 1)
    monkeypatch.setattr(cache, "decode_piece", whose.decoded_by_both)
    found = [each.problem for each in decode(str(album), names(album) * 8, 8, workers=2)]
    assert found[0] == str(os.getpid())  # the first, to see how long it takes
    assert str(os.getpid()) not in found[1:]
    assert len(set(found)) == 3


def test_a_few_are_decoded_here(album, monkeypatch):
    monkeypatch.setattr(cache, "CHUNK", 1)
    monkeypatch.setattr(cache, "decode_piece", whose.decoded_by)
    assert {each.problem for each in decode(str(album), names(album), 8, workers=2)} == {str(os.getpid())}


def test_a_broken_process_is_no_end(album, monkeypatch):
    monkeypatch.setattr(cache, "WORTH", -1.0)
    monkeypatch.setattr(cache, "CHUNK", 2)
    monkeypatch.setattr(cache, "decode_piece", whose.dies_elsewhere)
    found = list(decode(str(album), names(album), 8, workers=2))
    assert [each.name for each in found] == names(album)
    assert {each.problem for each in found} == {str(os.getpid())}


def kept(album, home, say=lambda line: None, asked=None, side=8):
    known = asked if asked is not None else [[name, (album / name).stat().st_mtime_ns] for name in names(album)]
    return keep(home, known, side, lambda: decode(str(album), names(album), side, 1), say)


def test_what_is_kept_is_what_was_decoded(album, tmp_path):
    array = kept(album, tmp_path / "cache")
    good = [name for name in names(album) if name not in ("4.png", "7.png")]
    assert array.names == good
    assert [problem.split(":")[0] for problem in array.problems] == ["4.png", "7.png"]
    assert len(array) == 7
    chosen = array[[5, 0, 5]]
    assert chosen.shape == (3, 3, 8, 8)
    assert np.array_equal(chosen[0], read_picture(album / good[5], 8))
    assert np.array_equal(chosen[1], read_picture(album / good[0], 8))
    again = pickle.loads(pickle.dumps(array))
    assert np.array_equal(again[range(7)], array[range(7)])
    assert len(pickle.dumps(array)) < 1000


def test_nothing_is_decoded_twice(album, tmp_path, monkeypatch):
    first = kept(album, tmp_path / "cache")
    monkeypatch.setattr(cache, "read_picture", lambda *_: pytest.fail("decoded again"))
    assert kept(album, tmp_path / "cache").folder == first.folder


def test_the_same_pictures_are_the_same_wherever_they_are(album, tmp_path):
    """Other times of the files and another place: decoded again, and found to be the same."""
    first = kept(album, tmp_path / "cache")
    for name in names(album):
        os.utime(album / name, (1, 1))
    assert kept(album, tmp_path / "cache").folder == first.folder
    moved = album.rename(tmp_path / "elsewhere")
    assert kept(moved, tmp_path / "other").folder.name == first.folder.name
    Image.new("RGB", (20, 20)).save(moved / "0.png")
    assert kept(moved, tmp_path / "other").folder.name != first.folder.name
    assert kept(moved, tmp_path / "other", side=9).side == 9


def test_damage_is_told_and_mended(album, tmp_path):
    said = []
    first = kept(album, tmp_path / "cache")
    before = first[range(7)].copy()
    content = bytearray((first.folder / "pixels.bin").read_bytes())
    content[100] ^= 1
    (first.folder / "pixels.bin").write_bytes(bytes(content))
    again = kept(album, tmp_path / "cache", said.append)
    assert "pixels.bin does not match its checksum" in said[0]
    assert np.array_equal(again[range(7)], before)


def test_no_pictures_at_all(tmp_path):
    array = keep(tmp_path, [], 8, lambda: iter(()), lambda line: None)
    assert len(array) == 0
    assert array[[]].shape == (0, 3, 8, 8)
    assert isinstance(array, Pixels)


def test_progress_is_said(album, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "SAID", 0.0)
    said = []
    kept(album, tmp_path / "cache", said.append)
    assert said[-1] == "7 pictures so far"
