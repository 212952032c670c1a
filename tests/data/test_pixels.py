"""Pixels: every common picture format, and every fault in one sentence; all in one array, stored and found again."""

import contextlib
import os
import pickle
import struct
import warnings
import zlib

import numpy as np
import pytest
import whose
from draws import SEED
from PIL import Image

from regard.data import pixels as module
from regard.data.pixels import Pixels, cache_pixels, decode, read_picture
from regard.errors import DataError

# Top left, top right, bottom left, bottom right.
QUARTERS = ((250, 10, 20), (15, 240, 30), (20, 25, 230), (240, 230, 15))


def quarters(width=40, height=40):
    """Draw a picture whose four quarters have four colours."""
    array = np.zeros((height, width, 3), np.uint8)
    for i, colour in enumerate(QUARTERS):
        rows = slice(0, height // 2) if i < 2 else slice(height // 2, None)
        columns = slice(0, width // 2) if i % 2 == 0 else slice(width // 2, None)
        array[rows, columns] = colour
    return Image.fromarray(array)


def corners(pixels):
    """Return the colours near the four corners."""
    side = pixels.shape[-1]
    near, far = side // 6, side - 1 - side // 6
    return [pixels[:, y, x].astype(int) for y in (near, far) for x in (near, far)]


def assert_quarters(pixels, order=(0, 1, 2, 3), away=40):
    assert pixels.dtype == np.uint8
    for found, i in zip(corners(pixels), order, strict=True):
        assert np.abs(found - QUARTERS[i]).max() < away, (found, QUARTERS[i])


@pytest.mark.parametrize("end", ["png", "bmp", "gif", "tif", "webp", "jpg", "ppm"])
def test_common_forms_are_read(tmp_path, end):
    quarters().save(tmp_path / f"x.{end}")
    pixels = read_picture(tmp_path / f"x.{end}", 24)
    assert pixels.shape == (3, 24, 24)
    assert_quarters(pixels)


def test_a_picture_of_the_size_is_taken_as_it_is(tmp_path):
    array = np.random.default_rng(SEED).integers(0, 256, (17, 17, 3), dtype=np.uint8)
    Image.fromarray(array).save(tmp_path / "x.png")
    assert np.array_equal(read_picture(tmp_path / "x.png", 17), array.transpose(2, 0, 1))


@pytest.mark.parametrize(("width", "height"), [(90, 30), (30, 90), (1, 51), (7, 3)])
def test_the_middle_is_cut_out_of_a_long_picture(tmp_path, width, height):
    array = np.full((height, width, 3), 200, np.uint8)
    short = min(width, height)
    left, top = (width - short) // 2, (height - short) // 2
    array[top : top + short, left : left + short] = 60
    Image.fromarray(array).save(tmp_path / "x.png")
    pixels = read_picture(tmp_path / "x.png", 15)
    assert pixels.shape == (3, 15, 15)
    assert np.abs(pixels[:, 7, 7].astype(int) - 60).max() < 12


@pytest.mark.parametrize(
    ("orientation", "order"),
    [(1, (0, 1, 2, 3)), (3, (3, 2, 1, 0)), (6, (2, 0, 3, 1)), (8, (1, 3, 0, 2)), (2, (1, 0, 3, 2))],
)
def test_exif_says_which_way_is_up(tmp_path, orientation, order):
    image = quarters()
    exif = image.getexif()
    exif[0x0112] = orientation
    image.save(tmp_path / "x.jpg", exif=exif, quality=95)
    assert_quarters(read_picture(tmp_path / "x.jpg", 20), order)


def test_grey_palettes_bits_and_cmyk_become_rgb(tmp_path):
    for mode in ("L", "1", "P", "CMYK", "YCbCr"):
        end = {"CMYK": "jpg", "YCbCr": "jpg"}.get(mode, "png")
        quarters().convert(mode).save(tmp_path / f"{mode}.{end}")
        pixels = read_picture(tmp_path / f"{mode}.{end}", 20)
        assert pixels.shape == (3, 20, 20)
        if mode in ("L", "1"):
            assert np.array_equal(pixels[0], pixels[2])
        else:
            assert_quarters(pixels, away=90)


def test_what_is_transparent_is_white(tmp_path):
    array = np.zeros((10, 10, 4), np.uint8)
    array[:, :5] = (200, 30, 40, 255)
    Image.fromarray(array, "RGBA").save(tmp_path / "a.png")
    Image.fromarray(array[..., [0, 3]].copy(), "LA").save(tmp_path / "b.png")
    palette = Image.fromarray(array[..., :3].copy()).convert("P", palette=Image.Palette.ADAPTIVE)
    palette.save(tmp_path / "c.png", transparency=palette.getpixel((9, 9)))
    for name in "abc":
        pixels = read_picture(tmp_path / f"{name}.png", 10)
        assert (pixels[:, 5, 8] == 255).all()
        assert abs(int(pixels[0, 5, 1]) - 200) < 10


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path):
    ramp = np.linspace(0, 65535, 100).astype(np.uint16).reshape(10, 10)
    Image.fromarray(ramp).save(tmp_path / "x.png")
    assert np.array_equal(read_picture(tmp_path / "x.png", 10)[1], (ramp >> 8).astype(np.uint8))


def test_an_animation_shows_its_first_picture(tmp_path):
    red, blue = (Image.new("RGB", (12, 12), colour) for colour in ((250, 0, 0), (0, 0, 250)))
    red.save(tmp_path / "x.gif", save_all=True, append_images=[blue])
    assert tuple(read_picture(tmp_path / "x.gif", 12)[:, 6, 6]) == (250, 0, 0)


def png_of(width, height):
    """Return a PNG whose header gives its size, with almost no content."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    heading = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + heading + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def saved(path, end="jpg"):
    quarters(200, 200).save(path.with_suffix(f".{end}"))
    return path.with_suffix(f".{end}").read_bytes()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "a folder given, expected a picture"),
        (lambda path: os.mkfifo(path), "a pipe or a device given"),
        (lambda path: path.write_bytes(b""), "an empty file"),
        (lambda path: path.write_text("no picture"), "not a picture (JPEG, PNG"),
        (lambda path: path.write_bytes(saved(path)[:1500]), "damaged, or not a picture: image file is truncated"),
        (lambda path: path.write_bytes(saved(path, "png")[:150]), "damaged, or not a picture"),
        (lambda path: path.write_bytes(saved(path, "gif")[:40]), "damaged, or not a picture"),
        (lambda path: path.write_bytes(saved(path)[:3]), "not a picture"),
        (lambda path: path.write_bytes(png_of(11_600, 11_600)), "more than 134,217,728 pixels"),
        (lambda path: path.write_bytes(png_of(60_000, 60_000)), "more than 134,217,728 pixels"),
        (lambda path: path.write_bytes(png_of(0, 7)), "x: "),
        (lambda path: path.write_bytes(png_of(10_000, 10_000)), "damaged, or not a picture"),  # an allowed size
    ],
)
def test_faults_are_named(tmp_path, make, said):
    path = tmp_path / "x"
    make(path)
    with warnings.catch_warnings(record=True, action="always") as heard, pytest.raises(DataError) as error:
        read_picture(path, 16)
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert not heard


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    (tmp_path / "x.png").write_bytes(png_of(12_000, 12_000))
    monkeypatch.setattr(module, "to_rgb", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(DataError, match="too large to be decompressed"):
        read_picture(tmp_path / "x.png", 16)


def test_every_cut_of_a_file_is_a_picture_or_a_data_error(tmp_path):
    for end in ("jpg", "png", "gif", "webp", "tif", "bmp"):
        whole = saved(tmp_path / "whole", end)
        for length in np.random.default_rng(SEED).integers(1, len(whole), 12):
            (tmp_path / "cut").write_bytes(whole[:length])
            with contextlib.suppress(DataError):
                assert read_picture(tmp_path / "cut", 8).shape == (3, 8, 8)


def test_programs_are_not_run_for_a_picture(tmp_path):
    """PostScript would start Ghostscript."""
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n")
    with pytest.raises(DataError, match="not a picture"):
        read_picture(tmp_path / "x.png", 8)


@pytest.fixture
def album(tmp_path):
    """Make a folder of distinct pictures and two other files."""
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
    monkeypatch.setattr(module, "WORTH", -1.0)
    monkeypatch.setattr(module, "CHUNK", 1)
    alone = list(decode(str(album), names(album), 8, workers=1))
    together = list(decode(str(album), names(album), 8, workers=2))
    assert [(each.name, each.problem) for each in together] == [(each.name, each.problem) for each in alone]
    for one, other in zip(alone, together, strict=True):
        assert (one.pixels is None and other.pixels is None) or np.array_equal(one.pixels, other.pixels)


def test_the_processes_are_others(album, monkeypatch):
    """Each chunk is decoded by a process other than this one, and by more than one in all."""
    monkeypatch.setattr(module, "WORTH", -1.0)
    monkeypatch.setattr(module, "CHUNK", 1)
    monkeypatch.setattr(module, "decode_piece", whose.decoded_by_both)
    found = [each.problem for each in decode(str(album), names(album) * 8, 8, workers=2)]
    assert found[0] == str(os.getpid())  # the first one, to measure the time
    assert str(os.getpid()) not in found[1:]
    assert len(set(found)) == 3


def test_a_few_are_decoded_here(album, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 1)
    monkeypatch.setattr(module, "decode_piece", whose.decoded_by)
    assert {each.problem for each in decode(str(album), names(album), 8, workers=2)} == {str(os.getpid())}


def test_a_broken_process_is_no_end(album, monkeypatch):
    monkeypatch.setattr(module, "WORTH", -1.0)
    monkeypatch.setattr(module, "CHUNK", 2)
    monkeypatch.setattr(module, "decode_piece", whose.dies_elsewhere)
    found = list(decode(str(album), names(album), 8, workers=2))
    assert [each.name for each in found] == names(album)
    assert {each.problem for each in found} == {str(os.getpid())}


def kept(album, home, say=lambda line: None, asked=None, side=8):
    known = asked if asked is not None else [[name, (album / name).stat().st_mtime_ns] for name in names(album)]
    return cache_pixels(home, known, side, lambda: decode(str(album), names(album), side, 1), say)


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


def test_the_same_pictures_are_the_same_wherever_they_are(album, tmp_path):
    """Files with other times in another place are decoded again and recognised as the same."""
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
    array = cache_pixels(tmp_path, [], 8, lambda: iter(()), lambda line: None)
    assert len(array) == 0
    assert array[[]].shape == (0, 3, 8, 8)
    assert isinstance(array, Pixels)


def test_progress_is_said(album, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAID", 0.0)
    said = []
    kept(album, tmp_path / "cache", said.append)
    assert said[-1] == "7 pictures so far"
