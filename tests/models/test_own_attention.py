"""A weighting or a score put into a model's attention is what the model computes, at once or step by step."""

import pytest
import torch
from models.cases import CASES, model_of, pair
from oracles import agree

from regard.attention import Attention
from regard.attention.score import Additive, Dot, General
from regard.attention.weighting import Softmax


def with_attention(name):
    return any(isinstance(part, Attention) for part in model_of(name).modules())


def logits(model):
    """Of all steps at once, and of one after the other."""
    source, target = pair()
    state = model.start(model.encode(source), size=8)
    steps = [model.step(tokens, state)[0] for tokens in target.ids.unbind(1)]
    return model(source, target)[target.real], torch.stack(steps, 1)[target.real]


def warmed(part):
    part.weighting = Softmax(temperature=3.0)


def turned(part):
    kind = type(part.score)
    if kind not in (Additive, Dot, General):
        warmed(part)  # a score a head
        return
    part.score.__class__ = type(
        "Mine", (kind,), {"compare": lambda self, q, k, first=0: 1 - 2 * kind.compare(self, q, k, first)}
    )


@pytest.mark.parametrize("change", [warmed, turned])
@pytest.mark.parametrize("name", [name for name in CASES if with_attention(name)])
def test_it_is_what_the_model_computes(name, change):
    model = model_of(name)
    with torch.no_grad():
        before, _ = logits(model)
        for part in model.modules():
            if isinstance(part, Attention):
                change(part)
        together, one_by_one = logits(model)
    agree(together, one_by_one)
    assert not torch.allclose(together, before)
