"""Pictures of studies: drawn scenes, and photographs that are unpacked once."""

import tarfile

import numpy as np
import pytest
from studies.galleries import SCENES, photographs

from regard_studies.corpora.images import unpack
from regard_studies.setting import Setting
from regard_studies.soft_hard.claim import gallery_of


def test_photographs_are_unpacked_once_and_split_as_listed(tmp_path):
    setting = Setting(data=photographs(tmp_path / "data"), out=tmp_path / "studies")
    gallery = gallery_of(setting)
    assert [each.shape for each in gallery.pixels] == [(3, 96, 96)]
    assert gallery.pixels[0][0].mean() == pytest.approx(200, abs=5)
    assert gallery.references == [["A picture number 5 , told 0 times .", "A picture number 5 , told 1 times ."]]
    (setting.data / "flickr8k" / "images.tar").write_bytes(b"")
    unpack(setting.data / "flickr8k" / "images.tar", setting.out / "data" / "flickr8k" / "images")
    assert len(list((setting.out / "data" / "flickr8k" / "images").iterdir())) == 6
    with pytest.raises(tarfile.ReadError):
        unpack(setting.data / "flickr8k" / "images.tar", tmp_path / "images")
    assert not (tmp_path / "images").exists()


def test_scenes_are_those_that_words_are_known_of():
    assert [each.shape for each in SCENES.pixels] == [(3, 32, 32)] * 6
    assert SCENES.references == [[each.target] for each in SCENES.scenes]
    assert np.array_equal(SCENES.pixels[2], SCENES.scenes[2].picture().transpose(2, 0, 1))
