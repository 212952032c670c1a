"""Packed batches: fixed counts, and what fills up counts nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batching import collate
from regard.data.packing import pack, pad_up, step_of
from regard.data.tokenizer import END, PAD, START
from regard.errors import ArgumentError
from regard.models import build, read_model_config
from regard.training import Prediction

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
