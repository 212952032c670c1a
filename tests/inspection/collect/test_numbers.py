"""The numbers behind views: weights computed from them, as papers write them, are those that the model had."""

import pytest
import torch
from inspection.subjects import ATTENTIVE, exhibit_of_subject, recorded

from regard.inspection.collect.exhibit import Addressing
from regard.inspection.collect.views import numbers_of

CHOSEN = [
    name for name in ATTENTIVE if not name.startswith(("ntm", "transformer-post", "transformer-no", "rnnsearch-b"))
]
FORMS = {
    "transformer": "dot",
    "luong-location": "stored",
    "luong-concat": "additive",
    "rnnsearch": "additive",
    "lstmn": "additive",
    "han": "dot",
    "convnet": "dot",
}


def weights_from(numbers):
    """Softmax of the scores, written down once more with torch alone."""
    if numbers.score == "dot":
        scores = numbers.scale * torch.einsum("hnd,hmd->hnm", numbers.query, numbers.keys)
    elif numbers.score == "additive":
        sums = torch.tanh(numbers.query[:, :, None] + numbers.keys[:, None])
        scores = torch.einsum("hnmd,hd->hnm", sums, numbers.vector.expand(len(sums), -1))
    else:
        scores = numbers.scores
    if numbers.bias is not None:
        scores = scores + numbers.bias
    mask = torch.ones_like(scores, dtype=torch.bool) if numbers.mask is None else numbers.mask.expand_as(scores)
    scores = (scores / numbers.temperature).masked_fill(~mask, -torch.inf)
    if numbers.groups is None:
        weights = scores.softmax(-1)
    else:
        groups = torch.tensor(numbers.groups)
        weights = torch.cat([scores[..., groups == each].softmax(-1) for each in groups.unique()], -1)
    weights = weights.nan_to_num(0.0)  # of a row that may look at nothing
    return weights if numbers.gate is None else weights * numbers.gate


@pytest.mark.parametrize("name", CHOSEN)
def test_weights_follow_from_the_numbers(name):
    forward, views = recorded(name)
    for view in views:
        numbers = numbers_of(forward, view)
        if numbers.weights is not None:  # hard attention takes one key
            assert (numbers.weights - view.weights).abs().max() == 0
            assert torch.equal(weights_from(numbers).argmax(-1), view.picked)
        else:
            assert (weights_from(numbers) - view.weights).abs().max() < 1e-5
    if name in FORMS:
        assert {numbers_of(forward, view).score for view in views} == {FORMS[name]}


@pytest.mark.parametrize("name", ["transformer", "rnnsearch", "lstmn", "han"])
def test_contexts_follow_from_the_values(name):
    forward, views = recorded(name)
    for view in views:
        numbers = numbers_of(forward, view)
        look = forward.looks[view.name]
        if numbers.groups is not None:
            groups = torch.tensor(numbers.groups)
            context = torch.stack([(view.weights * (groups == each)) @ numbers.values for each in groups.unique()])[
                :, 0
            ]
            assert (context - look.context).abs().max() < 1e-5
        elif numbers.query.shape[0] == 1:
            assert ((view.weights @ numbers.values)[0] - look.context[0]).abs().max() < 1e-5
        assert numbers.values.shape[:2] == (len(view.weights), view.weights.shape[2])


def test_an_exhibit_has_them_without_being_asked():
    assert all(view.numbers is not None for view in exhibit_of_subject("transformer").views)
    assert all(isinstance(view.numbers, Addressing) for view in exhibit_of_subject("ntm").views)
