"""An ensemble: the mean of its models' probabilities, step by step."""

import pytest
import torch
from decoding.cases import WORDS, small

from regard.data import START
from regard.decoding.ensemble import Ensemble, first_model
from regard.decoding.scoring import tokens_of
from regard.errors import ArgumentError

SOURCES = tokens_of([[3, 4, 5], [6]])


def steps(model, tokens, coverage=False):
    state = model.start(model.encode(SOURCES), rows=1, size=8, coverage=coverage)
    made = []
    for token in [START, *tokens]:
        logits, state = model.step(torch.full((2,), token), state)
        made.append(logits.log_softmax(-1))
    return torch.stack(made), state


@torch.no_grad()
def test_probabilities_are_the_mean_of_theirs():
    models = [small("transformer"), small("rnnsearch"), small("luong")]
    made, _ = steps(Ensemble(models), [4, 7, 3])
    each = torch.stack([steps(model, [4, 7, 3])[0] for model in models])
    torch.testing.assert_close(made.exp(), each.exp().mean(0))
    torch.testing.assert_close(made.exp().sum(-1), torch.ones(4, 2, dtype=torch.float64))
    assert made.shape[-1] == WORDS


@torch.no_grad()
def test_coverage_is_the_mean_of_theirs():
    models = [small("rnnsearch"), small("luong")]
    _, state = steps(Ensemble(models), [4, 7], coverage=True)
    each = [steps(model, [4, 7], coverage=True)[1].coverage for model in models]
    torch.testing.assert_close(state.coverage, torch.stack(each).mean(0))


def test_the_shortest_limit_holds():
    models = [small("rnnsearch"), small("rnn")]
    assert Ensemble(models).limit is None
    for model, limit in zip(models, (9, 7), strict=True):
        model.limit = limit
    assert Ensemble(models).limit == 7


def test_the_attention_of_the_first_is_read():
    models = [small("rnnsearch"), small("luong")]
    assert first_model(Ensemble(models)) is models[0]
    assert first_model(models[1]) is models[1]


def test_of_no_model_there_is_none():
    with pytest.raises(ArgumentError, match="models: none given"):
        Ensemble([])
