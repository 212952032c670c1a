"""Decoding is right: beam 1 is greedy, batches and caches change nothing, and exhaustive search agrees."""

import random

import pytest
import torch
from decoding.cases import every_target, fed_again, next_log_probs, sentences, small

from regard.data import END, PAD, START
from regard.decoding import Options, batches, search, tokens_of

KINDS = ["rnn", "rnnsearch", "luong", "transformer"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def tokens(found):
    return [[output.tokens for output in each.outputs] for each in found]


@every_kind
def test_a_beam_of_one_is_greedy(kind):
    model, sources = small(kind), sentences(3)
    for source, (said,) in zip(
        sources, tokens(search(model, tokens_of(sources), Options(beam=1, longest=5))), strict=True
    ):
        for i, token in enumerate([*said, END][:5]):
            scores = next_log_probs(model, source, said[:i])
            scores[[PAD, START]] = -torch.inf
            assert token == int(scores.argmax())


@every_kind
def test_alone_is_in_a_batch(kind):
    model, sources = small(kind), sentences(5)
    options = Options(beam=3, nbest=3, longest=5)
    together = search(model, tokens_of(sources), options)
    i = random.randrange(5)
    (alone,) = search(model, tokens_of([sources[i]]), options)
    assert tokens([alone]) == tokens([together[i]])
    for one, two in zip(alone.outputs, together[i].outputs, strict=True):
        assert one.score == pytest.approx(two.score, abs=1e-12)


@every_kind
def test_cached_is_fed_again(kind):
    model, (source,) = small(kind), sentences(1)
    wanted = fed_again(model, source, 3, 4, 0.6)
    assert tokens(search(model, tokens_of([source]), Options(beam=3, nbest=3, longest=4))) == [
        [said for said, _, _ in wanted]
    ]


@every_kind
def test_trying_everything_agrees(kind):
    """Search all outputs of up to five tokens from two words and END."""
    model, (source,) = small(kind, words=5), sentences(1, words=5)
    targets = list(every_target(5, 5))
    told = batches.score_pairs(model, [source] * len(targets), targets)
    best = sorted(zip(told, targets, strict=True), key=lambda each: -each[0].log_prob)
    options = Options(beam=len(targets), nbest=len(targets), length_penalty=0.0, longest=5)
    assert tokens(search(model, tokens_of([source]), options)) == [[target for _, target in best]]
