"""The cache of a beam against rows with caches of their own, through random forks and departures."""

import random

import pytest
import torch
from attention.cases import normal, scrambled
from oracles import agree

from regard.attention import Heads
from regard.attention.cache import MOST_ROWS, BeamIndexCache, SharedBeamCache, repeat_cache_rows
from regard.attention.positions import Rotary
from regard.attention.span import Alibi
from regard.errors import ArgumentError, ShapeError

SIZE, WIDTH = 9, 8


def begun(heads, sentences, steps):
    """Return a cache of one row per sentence after `steps` steps."""
    cache = heads.cache(sentences, SIZE, dtype=torch.float64)
    for step in range(steps):
        heads.step(normal(sentences, 1, WIDTH), cache, start=step)
    return cache


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("rows", [2, 3, MOST_ROWS])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_forks_are_copies(rotary, rows, steps):
    heads = scrambled(Heads(WIDTH, 2, rotary=Rotary(WIDTH // 2) if rotary else None))
    cache, sentences = begun(heads, 4, steps), 4
    beam = SharedBeamCache.from_cache(cache, rows)
    own = cache.take(torch.arange(sentences).repeat_interleave(rows))
    assert isinstance(beam, SharedBeamCache)
    assert not isinstance(own, SharedBeamCache)
    with torch.no_grad():
        for step in range(steps, SIZE):
            x = normal(sentences * rows, 1, WIDTH)
            start = torch.full((len(x),), step)
            agree(heads.step(x, beam, start=start), heads.step(x, own, start=start))
            assert torch.equal(beam.length, own.length)
            parents = torch.randint(rows, (sentences, rows)) + torch.arange(0, sentences * rows, rows)[:, None]
            beam.select_(parents.flatten())
            own.select_(parents.flatten())
            if sentences > 1 and random.random() < 0.4:  # some sentences leave the batch
                keep = torch.tensor(sorted(random.sample(range(sentences), sentences - 1)))
                index = (keep[:, None] * rows + torch.arange(rows)).flatten()
                beam, own, sentences = beam.take(index), own.take(index), sentences - 1
        with pytest.raises(ShapeError, match="slots used"):
            heads.step(normal(sentences * rows, 1, WIDTH), beam)


def test_when_rows_cannot_share():
    heads = scrambled(Heads(WIDTH, 2))
    assert SharedBeamCache.from_cache(begun(heads, 2, 1), MOST_ROWS + 1) is None  # too many rows to share
    uneven = begun(heads, 2, 1)
    uneven.length[0] = 0
    assert SharedBeamCache.from_cache(uneven, 2) is None
    alone = begun(heads, 2, 1)
    alone.private_rows = True
    assert SharedBeamCache.from_cache(alone, 2) is None
    assert SharedBeamCache.from_cache(BeamIndexCache.from_cache(begun(heads, 2, 1)), 2) is None
    heads.register_forward_hook(lambda *_: None)
    assert not isinstance(repeat_cache_rows(begun(heads, 2, 1), 2), SharedBeamCache)  # a hook is registered


def test_what_a_beam_refuses():
    heads = scrambled(Heads(WIDTH, 2))
    beam = SharedBeamCache.from_cache(begun(heads, 2, 1), 2)
    with pytest.raises(ShapeError, match="expected one per row"):
        beam.extend(heads.prepare(normal(4, 2, WIDTH)))
    with pytest.raises(ArgumentError, match="the rows of a beam see their own past"):
        heads.step(normal(4, 1, WIDTH), beam, span=Alibi(2))
