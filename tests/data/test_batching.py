"""Batches: every pair once, within the budget, a function of (seed, epoch), resumed exactly."""

import itertools
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from draws import SEED
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batching import (
    Batch,
    Order,
    Position,
    captions,
    collate,
    crop_and_flip,
    load,
    load_pictures,
    mix_bits,
    pack,
    pad_up,
    permute,
    step_of,
)
from regard.data.bpe_dropout import BpeDropout
from regard.data.cache import Encoded, Writer
from regard.data.pixels import Picture, cache_pixels, stored_side
from regard.data.settings import DataSettings
from regard.data.tokenizer import END, PAD, START, Tokenizers
from regard.data.vocabulary import train
from regard.errors import ArgumentError
from regard.models import build, read_model_config
from regard.training import Prediction

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=80).map(
    lambda rows: np.array(rows, np.int32)
)
IDS = st.lists(st.integers(4, 99), max_size=9)
SEEDS = st.integers(-(2**63), 2**70)


def like_captions(n, seed=0):
    """Draw log-normal lengths of two languages with correlation 0.8, about that of Multi30k or slightly less."""
    z = np.random.default_rng(seed).normal(size=(n, 2))
    z[:, 1] = 0.8 * z[:, 0] + 0.6 * z[:, 1]
    return np.clip(np.round(np.exp(np.array([2.6, 2.62]) + 0.35 * z)), 1, 200).astype(np.int32)


def same(first, second):
    first, second = list(first), list(second)
    return len(first) == len(second) and all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 200), SEEDS, st.none() | st.integers(1, 9), st.integers(1, 100), st.integers(0, 5))
def test_every_pair_once_and_within_the_budget(lengths, budget, seed, rows, window, epoch):
    order = Order(lengths, budget, seed=seed, rows=rows, window=window)
    batches = list(order.epoch(epoch))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        source, target = lengths[batch].max(0)
        assert len(batch) == 1 or (len(batch) * source <= budget and len(batch) * (target + 1) <= budget)
        assert rows is None or len(batch) <= rows
    assert same(batches, Order(lengths.copy(), budget, seed=seed, rows=rows, window=window).epoch(epoch))


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 100), st.integers(1, 40), st.integers(0, 3), st.integers(0, 60))
def test_a_stream_goes_on_from_any_position(lengths, budget, window, epoch, skip):
    order = Order(lengths, budget, seed=3, window=window)
    batches = [(Position(e, i), b) for e in range(epoch, epoch + 3) for i, b in enumerate(order.epoch(e))]
    whole = list(itertools.islice(order.stream(Position(epoch)), len(batches)))
    assert [p for p, _ in whole] == [p for p, _ in batches]
    assert same((b for _, b in whole), (b for _, b in batches))
    skip %= len(batches)
    rest = list(itertools.islice(order.stream(batches[skip][0]), len(batches) - skip))
    assert [p for p, _ in rest] == [p for p, _ in batches[skip:]]
    assert same((b for _, b in rest), (b for _, b in batches[skip:]))


def test_a_position_at_the_end_of_an_epoch_is_the_next():
    order = Order(like_captions(50), 100)
    count = len(list(order.epoch(0)))
    assert next(order.stream(Position(0, count)))[0] == Position(1, 0)
    assert next(order.stream())[0] == Position(0, 0)


@settings(max_examples=60)
@given(st.integers(1, 400), st.integers(0, 2**63))
def test_the_permutation_is_one(count, seed):
    places = np.arange(count, dtype=np.uint64)
    whole = permute(places, count, mix_bits(seed))
    assert sorted(whole.tolist()) == list(range(count))
    parts = [permute(places[i : i + 7], count, mix_bits(seed)) for i in range(0, count, 7)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_the_permutation_looks_random():
    """Each position goes everywhere: check mean and spread of many permutations, and of steps inside one."""
    drawn = np.array([permute(np.arange(50, dtype=np.uint64), 50, mix_bits(seed)) for seed in range(1000)], float)
    assert np.abs(drawn.mean(0) - 24.5).max() < 5 * 14.43 / 1000**0.5
    one = permute(np.arange(100_000, dtype=np.uint64), 100_000, mix_bits(5)).astype(float)
    assert abs(np.corrcoef(one[:-1], one[1:])[0, 1]) < 5 / 100_000**0.5
    assert abs(np.corrcoef(one, np.arange(100_000))[0, 1]) < 5 / 100_000**0.5


def test_numbers_are_mixed_as_ever():
    """SplitMix64 from 0 and 1, computed with Python's integers: the order of a run must never change."""

    def splitmix(x):
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    numbers = [0, 1, 2**63, 2**64 - 1]
    assert mix_bits(np.array(numbers, np.uint64)).tolist() == [splitmix(x) for x in numbers]
    assert mix_bits(0).tolist() == [0xE220A8397B1DCDAF]


def test_seeds_and_epochs_give_other_orders():
    lengths = like_captions(500)
    firsts = {tuple(next(Order(lengths, 500, seed=seed).epoch(epoch))) for seed in range(4) for epoch in range(4)}
    assert len(firsts) == 16


def test_batches_are_not_in_order_of_length():
    lengths = like_captions(5000)
    widths = np.array([lengths[batch].max() for batch in Order(lengths, 500).epoch(0)], float)
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.3


@pytest.mark.parametrize("n", [29_000])
def test_little_is_padding(n):
    lengths = like_captions(n)
    assert 0.7 < np.corrcoef(lengths.T)[0, 1] < 0.9
    real = computed = 0
    for batch in Order(lengths, 4096).epoch(0):
        real += lengths[batch].sum() + len(batch)
        computed += len(batch) * (lengths[batch].max(0).sum() + 1)
    assert real / computed >= 0.95


def test_weights_are_kept_on_average():
    sizes, weights = [300, 0, 500, 200], [2.0, 1.0, 0.4, 2.3]
    starts = [0, 300, 300, 800]
    order = Order(like_captions(1000), 600, starts=starts, weights=weights, window=170)
    epochs = 60
    times = np.zeros((epochs, 1000), int)
    for epoch in range(epochs):
        np.add.at(times[epoch], np.concatenate(list(order.epoch(epoch))), 1)
    for start, size, weight in zip(starts, sizes, weights, strict=True):
        part = times[:, start : start + size]
        if not size:
            continue
        assert set(np.unique(part)) <= {int(np.floor(weight)), int(np.ceil(weight))}
        fraction = weight % 1
        assert abs(part.mean() - weight) <= 5 * (fraction * (1 - fraction) / part.size) ** 0.5
        # The pairs differ between epochs: each occurs about as often as its weight says.
        assert np.abs(part.mean(0) - weight).max() <= 5.5 * (fraction * (1 - fraction) / epochs) ** 0.5


@settings(max_examples=60)
@given(LENGTHS, st.floats(0.1, 3), st.integers(1, 50))
def test_weighted_streams_resume_too(lengths, weight, window):
    order = Order(lengths, 60, starts=[0, len(lengths) // 2], weights=[weight, 1.0], window=window)
    start = list(itertools.islice(order.stream(), 9))
    for i in (1, 5, 8):
        rest = itertools.islice(order.stream(start[i][0]), 9 - i)
        assert same((b for _, b in rest), (b for _, b in start[i:]))


def test_skipping_is_fast():
    lengths = like_captions(1_000_000)
    order = Order(lengths, 8192)
    began = time.perf_counter()
    position, _ = next(order.stream(Position(1_000_000, 1500)))
    assert position == Position(1_000_000, 1500)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 0}, "budget: 0 given, expected at least 1"),
        ({"rows": 0}, "rows: 0 given"),
        ({"weights": [0.0]}, "weights: .0.0. given, expected 1 numbers above 0"),
        ({"weights": [1.0, 1.0]}, "weights"),
        ({"starts": [1]}, "starts: .1. given, expected 0 first"),
        ({"starts": [0, 99], "weights": [1.0, 1.0]}, "starts"),
        ({"lengths": np.zeros((0, 2), np.int32)}, "lengths: no pairs given"),
    ],
)
def test_an_impossible_order_is_refused(change, message):
    with pytest.raises(ArgumentError, match=message):
        Order(**{"lengths": like_captions(9), "budget": 100, **change})


# Batches


@pytest.fixture
def encoded(tmp_path):
    rows = np.random.default_rng(1)
    pairs = [tuple(rows.integers(4, 99, size=rows.integers(1, 9)).tolist() for _ in range(2)) for _ in range(40)]
    writer = Writer(tmp_path / "train")
    writer.write(*map(list, zip(*pairs[:17], strict=True)))
    writer.write([], [])
    writer.write(*map(list, zip(*pairs[17:], strict=True)))
    writer.close()
    return Encoded(tmp_path / "train"), pairs


def check(batch, pairs):
    """Check every row of a batch with a loop."""
    width, height = max(len(s) for s, _ in pairs), max(len(t) for _, t in pairs) + 2
    assert batch.source.shape == (len(pairs), width)
    assert batch.target.shape == (len(pairs), height)
    assert {t.dtype for t in (batch.source, batch.target, batch.source_lengths, batch.target_lengths)} == {torch.int64}
    for row, (source, target) in enumerate(pairs):
        assert batch.source[row].tolist() == [*source, *[PAD] * (width - len(source))]
        assert batch.target[row].tolist() == [START, *target, END, *[PAD] * (height - len(target) - 2)]
        assert batch.source_lengths[row] == len(source)
        assert batch.target_lengths[row] == len(target) + 1
    assert batch.tokens == sum(len(target) + 1 for _, target in pairs)
    assert len(batch) == len(pairs)


@settings(max_examples=40)
@given(
    pairs=st.lists(
        st.tuples(st.lists(st.integers(4, 99), max_size=9), st.lists(st.integers(4, 99), max_size=9)), min_size=1
    )
)
def test_collating(pairs):
    check(collate(pairs), pairs)


def test_loading_is_collating(encoded):
    cache, pairs = encoded
    for indices in ([0], [39], [3, 3, 20], np.arange(40), np.array([7, 1], np.int32)):
        check(load(cache, indices), [pairs[i] for i in indices])


def test_halves_are_the_rows(encoded):
    cache, pairs = encoded
    for count in (2, 5):
        first, second = load(cache, np.arange(count)).halves()
        check(first, pairs[: (count + 1) // 2])
        check(second, pairs[(count + 1) // 2 : count])
    with pytest.raises(ArgumentError, match="a batch of one row cannot be halved"):
        load(cache, [0]).halves()


def test_a_batch_moves(encoded):
    cache, pairs = encoded
    check(load(cache, [1, 2]).to("cpu"), pairs[1:3])
    assert load(cache, [1]).to("meta").source.device.type == "meta"


def test_what_was_called_each_still_moves_tensors():
    batch = collate([([5, 6], [7]), ([8], [9, 10])])
    with pytest.warns(DeprecationWarning, match="each is now called map_tensors") as warned:
        doubled = batch.each(lambda tensor: 2 * tensor)
    assert len(warned) == 1
    assert torch.equal(doubled.source, 2 * batch.source)

    def each(self, move):
        return Batch.each(self, lambda tensor: 3 * move(tensor))

    with pytest.warns(DeprecationWarning, match="Scaled.each is now called map_tensors") as warned:
        Scaled = type("Scaled", (Batch,), {"each": each})
    scaled = Scaled(**vars(batch)).to("cpu")  # warnings are errors
    assert len(warned) == 1
    assert type(scaled) is Scaled
    assert torch.equal(scaled.target, 3 * batch.target)


def test_collating_nothing_is_refused():
    with pytest.raises(ArgumentError, match="pairs: none given"):
        collate([])


def test_loading_with_dropout(tmp_path):
    texts = ["unrelated relations unite", "lower newest widest low new"] * 20
    both = Tokenizers(train(texts, size=400))
    writer = Writer(tmp_path / "train")
    ids = both.source.encode_batch(texts)
    writer.write(ids, ids)
    writer.close()
    cache, dropout = Encoded(tmp_path / "train"), BpeDropout(both, 0.4, seed=5)
    batch = load(cache, [3, 0, 9], dropout, epoch=2)
    for row, index in enumerate([3, 0, 9]):
        assert both.target.decode(batch.target[row].tolist()) == texts[index]
        alone = load(cache, [index], dropout, epoch=2)
        assert alone.source[0].tolist() == batch.source[row, : batch.source_lengths[row]].tolist()
    other = load(cache, [3, 0, 9], dropout, epoch=3)
    assert Counter(batch.source.flatten().tolist()) != Counter(other.source.flatten().tolist())


# ---- packed batches


SMALL = {"size": 8, "dropout": 0.0}
MODELS = {
    "transformer": SMALL | {"kind": "transformer", "heads": 2, "layers": 2, "hidden": 8},
    "post": SMALL | {"kind": "transformer", "heads": 2, "layers": 1, "hidden": 8, "norm": "post", "tied": "all"},
    "learned": SMALL | {"kind": "transformer", "heads": 2, "layers": 1, "hidden": 8, "positions": "learned"},
    "rotary": SMALL | {"kind": "transformer", "heads": 2, "layers": 1, "hidden": 8, "positions": "rotary"},
    "rnnsearch": {"kind": "rnnsearch", "size": 8, "embedding": 8, "hidden": 8, "maxout": 8, "dropout": 0.0},
    "luong": {"kind": "luong", "size": 8, "embedding": 8, "layers": 1, "dropout": 0.0},
}
sentences = st.lists(st.integers(4, 10), min_size=1, max_size=9)
some_pairs = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=9)


def packed(pairs, step):
    lengths = np.array([[len(source), len(target)] for source, target in pairs])
    return pack(*(np.concatenate([np.array(pair[side]) for pair in pairs]) for side in (0, 1)), lengths, step)


def drawn(count, seed=0):
    draw = np.random.default_rng(seed)
    return [tuple(draw.integers(4, 11, draw.integers(1, 20)).tolist() for _ in range(2)) for _ in range(count)]


@given(some_pairs, st.sampled_from([1, 3, 16, 64]))
@settings(max_examples=60)
def test_sentences_lie_end_to_end_and_the_rest_is_filling(pairs, step):
    batch = packed(pairs, step)
    source, read, expected, *offsets = (part.tolist() for part in batch.parts())
    assert [len(source), len(read), len(expected)] == [*batch.sizes, batch.sizes[1]]
    assert all(size % step == 0 for size in batch.sizes)
    assert len(offsets[0]) == len(offsets[1]) == batch.rows + 1
    for i, (said, heard) in enumerate(pairs):
        assert source[offsets[0][i] : offsets[0][i + 1]] == said
        assert read[offsets[1][i] : offsets[1][i + 1]] == [START, *heard]
        assert expected[offsets[1][i] : offsets[1][i + 1]] == [*heard, END]
    for side, tokens, filling in ((0, source, PAD), (1, read, PAD), (1, expected, -1)):
        assert offsets[side][0] == 0
        assert offsets[side][-1] == len(tokens)
        assert set(tokens[offsets[side][len(pairs)] :]) <= {filling}
        assert np.diff(offsets[side]).min() >= 0
        assert np.diff(offsets[side]).max() <= batch.longest
    assert batch.tokens == sum(number >= 0 for number in expected)
    assert len(batch) == len(pairs)


def losses(objective, batch):
    loss = objective(batch)
    parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    return [loss.total, loss.parts["nll"], loss.parts["tokens"], *torch.autograd.grad(loss.total, parameters)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [1, 7])
def test_what_fills_up_counts_nothing(name, count):
    pairs = drawn(count)
    config = read_model_config(MODELS[name])
    objective = Prediction(build(MODELS[name]["kind"], config, 11, 11).double(), 0.1).train()
    expected = losses(objective, collate(pairs))
    forms = [pad_up(collate(pairs))]
    if "transformer" in MODELS[name]["kind"]:
        forms += [packed(pairs, step) for step in (1, 16, 256)]
    for batch in forms:
        for one, other in zip(losses(objective, batch), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_batch_is_its_halves():
    pairs = drawn(5)
    objective = Prediction(build("transformer", read_model_config(MODELS["transformer"]), 11, 11).double(), 0.1).train()
    batch = packed(pairs, 64)
    halves = batch.halves()
    assert [len(half) for half in halves] == [3, 2]
    assert sum(half.tokens for half in halves) == batch.tokens
    torch.testing.assert_close(sum(objective(half).total for half in halves), objective(batch).total)
    with pytest.raises(ArgumentError, match="one row"):
        packed(pairs[:1], 1).halves()


def test_few_shapes():
    draw = np.random.default_rng(0)
    shapes = set()
    for _ in range(200):
        pairs = [([4] * draw.integers(15, 25), [5] * draw.integers(15, 25)) for _ in range(draw.integers(38, 42))]
        shapes.add(packed(pairs, step_of(1024)).shape)
    assert len(shapes) < 40
    assert step_of(25_000) == 1024
    assert step_of(1) == 16


@pytest.mark.parametrize("rows", [1, 7, 8, 63, 200])
def test_a_padded_batch_grows_by_little(rows):
    batch = collate(drawn(rows))
    grown = pad_up(batch)
    assert grown.source.shape[1] % 4 == 0
    assert (grown.target.shape[1] - 1) % 4 == 0
    assert rows <= len(grown) <= max(8, rows * 1.125 + 8)
    assert grown.tokens == batch.tokens == int(grown.target_lengths.sum())
    assert int(grown.source_lengths.min()) >= 1
    assert torch.equal(grown.source[:rows, : batch.source.shape[1]], batch.source)
    assert torch.equal(grown.target[:rows, : batch.target.shape[1]], batch.target)


# ---- pictures


SIDE = 12


@pytest.fixture
def prepared(tmp_path):
    """Return a function that prepares a corpus of random pictures, with captions or with labels."""

    def prepared(targets, labels=(), side=SIDE):
        rng = np.random.default_rng(1)
        array = [rng.integers(0, 256, (3, side, side), dtype=np.uint8) for _ in targets]
        pictures = cache_pixels(
            tmp_path, side, side, lambda: (Picture(str(i), each) for i, each in enumerate(array)), lambda line: None
        )
        writer = Writer(tmp_path / f"train-{side}-{len(targets)}")
        order = list(range(len(targets)))[::-1]  # a picture's index differs from its row
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
    assert batch.tokens == 12 == int(corpus.train.lengths[[2, 0], 1].sum()) + 2  # as the plan counts
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
    assert torch.equal(load([7, 30], seed=3, epoch=2), whole[[7, 30]])  # whatever the rest of the batch
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
