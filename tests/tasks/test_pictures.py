"""Pictures as a run reads them: files, pixels, and a test set of which some cannot be read."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data import DataSettings
from regard.errors import ArgumentError
from regard.tasks.pictures import read_pictures, read_test_pictures

DATA = DataSettings(images="x", captions="y", image_size=8)


@pytest.fixture
def folder(tmp_path):
    for i, name in enumerate(("a.png", "B.PNG")):
        Image.new("RGB", (12, 9), (40 * i, 10, 0)).save(tmp_path / name)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG nothing")
    return tmp_path


def test_files_are_read_and_pixels_are_taken_as_they_are(folder):
    pixels = torch.zeros(3, 8, 8)
    made, same = read_pictures(DATA, [folder / "a.png", pixels])
    assert made.shape == (3, 8, 8)
    assert np.asarray(made)[1].mean() == 10
    assert same is pixels


def test_one_path_is_no_list_of_them(folder):
    with pytest.raises(ArgumentError, match="pictures: one path given, expected a list"):
        next(read_pictures(DATA, folder / "a.png"))


def test_what_cannot_be_read_is_named(folder):
    pixels, lost = read_test_pictures(DATA, folder, ["a.png", "missing.png", "broken.png"])
    assert list(pixels) == ["a.png"]
    assert len(lost) == 2
    assert lost[0] == f"missing.png: no such picture in {folder}"
    assert "broken.png" in lost[1]
