"""A weighting or a score put into a model's attention takes effect, both in the forward and step by step."""

from functools import cache

import pytest
import torch
from models.cases import CASES, RECURRENT_CASES, model_of, pair
from oracles import agree
from torch import nn

from regard.attention import Additive, Attention, Dot, General, Hard, Score, Softmax, use_backend


@cache
def with_attention(name):
    return any(isinstance(part, Attention) for part in model_of(name).modules())


def logits(model, source, target):
    """Return the logits of all steps at once, and of one step after the other."""
    state = model.start(model.encode(source), size=8)
    steps = [model.step(tokens, state)[0] for tokens in target.ids.unbind(1)]
    return model(source, target)[target.real], torch.stack(steps, 1)[target.real]


def warmed(part):
    part.weighting = Softmax(temperature=3.0)


def turned(part):
    kind = type(part.score)
    if kind not in (Additive, Dot, General):
        warmed(part)  # one score per head
        return
    part.score.__class__ = type(
        "Mine", (kind,), {"compare": lambda self, q, k, first=0: 1 - 2 * kind.compare(self, q, k, first)}
    )


class Near(Score):
    """-|q - P k|²: a score that favours near keys."""

    def __init__(self, query_size, key_size):
        super().__init__()
        self.near = nn.Linear(key_size, query_size, dtype=torch.float64)

    def project_keys(self, keys):
        return self.near(keys)

    def projected_size(self, key_size):
        return self.near.out_features

    def compare(self, query, keys, first=0):
        return -(query[..., :, None, :] - keys[..., None, :, :]).square().sum(-1)


def replace_score(part, width):
    part.score = Near(part.score.query_size or width, getattr(part.score, "key_size", None) or width)


def exchange_score(part, width):
    """Replace the model's score with another of the library's."""
    sizes = part.score.query_size or width, part.score.key_size or width
    part.score = (General(*sizes) if type(part.score) is Additive else Additive(*sizes, hidden=3)).double()


def scale_score(part, width):
    part.score = Dot(scaled=True) if type(part.score) is Dot else part.score
    part.weighting = Hard().eval()


@pytest.mark.parametrize("change", [warmed, turned])
@pytest.mark.parametrize("name", [name for name in CASES if with_attention(name)])
def test_it_is_what_the_model_computes(name, change):
    check(name, lambda part, width: change(part))


@pytest.mark.parametrize("change", [replace_score, exchange_score, scale_score])
@pytest.mark.parametrize("name", [name for name in RECURRENT_CASES if with_attention(name)])
def test_another_score_in_place_of_a_recurrent_models_own_is_what_it_computes(name, change):
    check(name, change, but="encoder.")  # source encoders may have heads of different widths


def check(name, change, but="nothing"):
    """Check that changing all attentions of a model changes its result, equally in the forward and step by step.

    Not every draw shows it: scores may be so large that soft attention is already hard, or a layer's states all zero.
    """
    assert any(is_changed(name, change, but) for _ in range(10))


def is_changed(name, change, but):
    """Return whether newly drawn inputs give another result after the change; forward and steps must agree."""
    model, given = model_of(name), pair()
    with torch.no_grad():
        before, _ = logits(model, *given)
        for path, part in model.named_modules():
            if isinstance(part, Attention) and not path.startswith(but):
                change(part, model.config.size)
        together, one_by_one = logits(model, *given)
        with use_backend("dense"):
            agree(together, logits(model, *given)[0])
    agree(together, one_by_one)
    return not torch.allclose(together, before)
