"""Batches of pictures: each once with all its captions, cut and mirrored by (seed, epoch, picture)."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import SEED
from hypothesis import given
from hypothesis import strategies as st

from regard.data.cache import Encoded, Writer
from regard.data.images.batching import captions, crop_and_flip, load_pictures, stored_side
from regard.data.images.pixels import Picture, keep
from regard.data.settings import DataSettings
from regard.data.tokenizer import END, PAD, START
from regard.errors import ArgumentError

SIDE = 12


@pytest.fixture
def prepared(tmp_path):
    """A function that gives a prepared corpus of random pictures, with captions or with labels."""

    def prepared(targets, labels=(), side=SIDE):
        rng = np.random.default_rng(1)
        array = [rng.integers(0, 256, (3, side, side), dtype=np.uint8) for _ in targets]
        pictures = keep(
            tmp_path, side, side, lambda: (Picture(str(i), each) for i, each in enumerate(array)), lambda line: None
        )
        writer = Writer(tmp_path / f"train-{side}-{len(targets)}")
        order = list(range(len(targets)))[::-1]  # a picture's place is not its row
        writer.write([[i] for i in order], [targets[i] for i in order])
        writer.close()
        encoded = Encoded(tmp_path / f"train-{side}-{len(targets)}")
        return SimpleNamespace(pictures=pictures, train=encoded, labels=labels)

    return prepared


CAPTIONS = st.lists(st.lists(st.lists(st.integers(4, 99), min_size=1, max_size=5), min_size=1, max_size=4), min_size=1)


@given(CAPTIONS)
def test_captions_are_taken_apart(pictures):
    flat = [sum(([END, *caption] for caption in each[1:]), list(each[0])) for each in pictures]
    tokens = np.array([i for each in flat for i in each], np.int64)
    picture, target, predicted = captions(tokens, np.array([len(each) for each in flat], np.int64))
    rows = [(i, caption) for i, each in enumerate(pictures) for caption in each]
    assert picture.tolist() == [i for i, _ in rows]
    assert predicted.tolist() == [len(caption) + 1 for _, caption in rows]
    width = max(len(caption) for _, caption in rows) + 2
    for row, (_, caption) in zip(target.tolist(), rows, strict=True):
        assert row == [START, *caption, END, *[PAD] * (width - len(caption) - 2)]


def test_a_batch_has_each_picture_once_and_all_its_captions(prepared):
    corpus = prepared([[5, 6, END, 7], [8], [9, END, 4, END, 5, 5]])
    batch = load_pictures(corpus, corpus.train, [2, 0], train=False, data=DataSettings(image_size=SIDE))
    assert torch.equal(batch.pixels, torch.from_numpy(corpus.pictures[[0, 2]]))
    assert batch.picture.tolist() == [0, 0, 1, 1, 1]
    assert batch.target_lengths.tolist() == [3, 2, 2, 2, 3]
    assert batch.tokens == 12 == int(corpus.train.lengths[[2, 0], 1].sum()) + 2  # as a plan is counted
    assert len(batch) == 2
    assert batch.labels.shape == (0,)


def test_halves_are_the_whole(prepared):
    corpus = prepared([[5, 6, END, 7], [8], [9, END, 4, 4, 4, 4]])
    batch = load_pictures(corpus, corpus.train, [0, 1, 2], train=False, data=DataSettings(image_size=SIDE))
    first, last = batch.halves()
    assert torch.equal(torch.cat([first.pixels, last.pixels]), batch.pixels)
    assert torch.cat([first.picture, last.picture + 2]).tolist() == batch.picture.tolist()
    assert first.tokens + last.tokens == batch.tokens
    assert last.target.shape == (2, 4)
    assert last.target.tolist()[0] == [START, 5, 6, END]
    with pytest.raises(ArgumentError, match="one picture cannot be halved"):
        last.halves()


def test_labels_come_one_a_picture(prepared):
    corpus = prepared([[1], [0], [1]], labels=("a", "b"))
    batch = load_pictures(corpus, corpus.train, [0, 1, 2], train=True, data=DataSettings(image_size=SIDE))
    assert batch.labels.tolist() == [1, 0, 1]
    assert batch.tokens == 3
    assert batch.target.shape == (0, 0)
    first, last = batch.halves()
    assert first.labels.tolist() + last.labels.tolist() == [1, 0, 1]
    assert (first.tokens, last.tokens) == (2, 1)
    moved = batch.to("cpu")
    assert torch.equal(moved.pixels, batch.pixels)


def test_without_training_the_middle_is_taken(prepared):
    corpus, data = prepared([[5], [6]], side=16), DataSettings(image_size=12, crop=0.25, flip=True)
    assert stored_side(data) == 16
    batch = load_pictures(corpus, corpus.train, [0, 1], train=False, data=data, epoch=3)
    assert torch.equal(batch.pixels, torch.from_numpy(corpus.pictures[[1, 0]][..., 2:14, 2:14].copy()))


def test_what_is_seen_is_a_function_of_seed_epoch_and_picture(prepared):
    corpus = prepared([[5]] * 40, side=16)
    data = DataSettings(image_size=12, crop=0.25, flip=True)

    def load(rows, **more):
        return load_pictures(corpus, corpus.train, rows, train=True, data=data, **more).pixels

    whole = load(range(40), seed=3, epoch=2)
    assert torch.equal(load(range(40), seed=3, epoch=2), whole)
    assert torch.equal(load([7, 30], seed=3, epoch=2), whole[[7, 30]])  # whatever else is in the batch
    for other in (load(range(40), seed=3, epoch=3), load(range(40), seed=4, epoch=2)):
        assert sum(torch.equal(a, b) for a, b in zip(other, whole, strict=True)) < 8


def test_every_cut_is_a_part_of_its_picture_and_half_are_mirrored():
    rng, data = np.random.default_rng(SEED), DataSettings(image_size=5, crop=0.3, flip=True)
    pixels = rng.integers(0, 256, (200, 3, 8, 8), dtype=np.uint8)
    found = crop_and_flip(pixels, np.arange(200), data, 0, 0)
    mirrored, tops = 0, set()
    for picture, part in zip(pixels, found, strict=True):
        places = [
            (y, x, turned)
            for y in range(4)
            for x in range(4)
            for turned in (False, True)
            if np.array_equal((picture[..., ::-1] if turned else picture)[:, y : y + 5, x : x + 5], part)
        ]
        assert len(places) == 1
        mirrored += places[0][2]
        tops.add(places[0][:2])
    assert 65 < mirrored < 135
    assert len(tops) == 16


def test_a_corpus_without_pictures_is_refused(prepared):
    corpus = prepared([[5]])
    corpus.pictures = None
    with pytest.raises(ArgumentError, match="without pictures"):
        load_pictures(corpus, corpus.train, [0], train=False, data=DataSettings())
