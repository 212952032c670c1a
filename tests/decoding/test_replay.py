"""Searches that are replayed: which they are, in what precision; on a GPU, that they find what `search` finds."""

import random

import pytest
import torch
from decoding.cases import SMALL, WORDS, sentences, small

from regard.attention import watch
from regard.decoding.batches import can_replay, search_in_batches
from regard.decoding.half_precision import to_bfloat16
from regard.decoding.options import GREEDY, Options
from regard.decoding.replay import CLASSES, FEW, Replay, class_of, serves
from regard.decoding.search import search
from regard.decoding.sources import tokens_of
from regard.errors import ArgumentError
from regard.models.kinds import build, model_config

CUDA = torch.device("cuda")


def test_which_searches_are_replayed():
    model, many = small("transformer"), sentences(FEW)
    assert serves(Options())
    assert can_replay(model, many, GREEDY, CUDA, trace=False)
    assert not can_replay(model, many, GREEDY, torch.device("cpu"), trace=False)
    assert not can_replay(model, many[1:], GREEDY, CUDA, trace=False)
    assert not can_replay(model, many, GREEDY, CUDA, trace=True)
    for option in ({"sample": True}, {"coverage_penalty": 0.2}, {"no_repeat": 3}, {"groups": 5}):
        assert not can_replay(model, many, Options(**option), CUDA, trace=False)
    with watch(model):  # a graph runs no hooks
        assert not can_replay(model, many, GREEDY, CUDA, trace=False)


def test_classes_of_length():
    assert [class_of(length) for length in (1, 16, 17, 1024, 1025)] == [16, 16, 32, 1024, 1025]
    assert list(CLASSES) == sorted(CLASSES)


@pytest.mark.parametrize("kind", ["transformer", "rnnsearch", "both"])
def test_half_is_near_the_whole(kind):
    """Weights rounded to eight bits: the scores of the next token move little, and are in float32."""
    model = small(kind, scale=1.0, dtype=torch.float32)
    half = to_bfloat16(model)
    assert next(model.parameters()).dtype == torch.float32
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    source = tokens_of(sentences(4))
    with torch.no_grad():
        scores = []
        for each in (model, half):
            state = each.start(each.encode(source), 1, 4)
            scores.append(each.step(torch.tensor([1, 1, 1, 1]), state)[0])
    assert scores[1].dtype == torch.float32
    torch.testing.assert_close(scores[1], scores[0], atol=0.1, rtol=0.05)


def test_a_bias_is_not_rounded():
    """Scores around a large bias would be equal in bfloat16."""
    model = build("transformer", model_config(SMALL["transformer"]), WORDS, WORDS).eval()
    with torch.no_grad():
        model.readout.bias.copy_(20 + torch.arange(WORDS) / 100)
        half = to_bfloat16(model)
        x = torch.zeros(2, 8, dtype=torch.bfloat16)
        torch.testing.assert_close(half.output(x), model.readout.bias.expand(2, -1), atol=2e-4, rtol=0)


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("kind", [*SMALL, "both"])
def test_replayed_is_searched(kind, beam, without_tf32):
    """More sentences than places, of every length; ties may fall either way in float32."""
    model = small(kind, words=60, scale=2.0, dtype=torch.float32).to(CUDA)
    sources = [*sentences(90, longest=40, words=60), []]
    prefixes = [[random.randrange(3, 60) for _ in range(random.randint(0, 2))] for _ in sources]
    options = Options(beam=beam, nbest=beam, precision="fp32")
    for begun in (None, prefixes):
        found = Replay(model, rows=32 * beam).search(sources, options, begun)
        expected = search(model, tokens_of(sources[:-1], CUDA), options, prefixes=None if begun is None else begun[:-1])
        apart = [abs(a.outputs[0].score - b.outputs[0].score) for a, b in zip(found, expected, strict=False)]
        assert max(apart) < 1e-3
        assert sum(a.outputs[0].tokens == b.outputs[0].tokens for a, b in zip(found, expected, strict=False)) >= 85
        assert found[-1].outputs[0].tokens == []


@pytest.mark.gpu
def test_graphs_serve_again_and_weights_may_change():
    model = small("transformer", words=60, scale=2.0, dtype=torch.float32).to(CUDA)
    sources, options = sentences(FEW, longest=12, words=60), Options(beam=3)
    replay = Replay(model)
    first = replay.search(sources, options)
    assert search_in_batches(model, sources, options, device=CUDA, replay=replay) == first
    assert replay.search(sources, options) == first
    kept = list(replay.graphs.values())
    with torch.no_grad():
        model.readout.bias[7] += 200.0
    changed = replay.search(sources, options)
    assert all(7 in found.outputs[0].tokens for found in changed)
    assert not set(map(id, replay.graphs.values())) & set(map(id, kept))


@pytest.mark.gpu
@pytest.mark.unchecked
def test_prefixes_that_do_not_fit():
    model = small("transformer", dtype=torch.float32).to(CUDA)
    sources = sentences(FEW)
    with pytest.raises(ArgumentError, match="prefixes: 1 given"):
        search_in_batches(model, sources, prefixes=[[3]], device=CUDA)
    with pytest.raises(ArgumentError, match="prefix: token 99 given, expected less than 11"):
        search_in_batches(model, sources, prefixes=[[99]] * FEW, device=CUDA)
    with pytest.raises(ArgumentError, match="prefix: 3 tokens given, expected at most 2"):
        search_in_batches(model, sources, Options(longest=2), prefixes=[[3, 3, 3]] * FEW, device=CUDA)
