"""Weights by their names: each once, and those that do not fit are named."""

import pytest
import torch
from torch import nn

from regard.errors import CheckpointError
from regard.training.weights import load_weights, weights_of


def test_shared_weights_stand_there_once():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.ModuleList([first, second])
    assert list(weights_of(model)) == ["0.weight", "0.bias", "1.bias"]
    other = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    other[1].weight = other[0].weight
    load_weights(other, {name: tensor.detach() for name, tensor in weights_of(model).items()}, "x")
    assert torch.equal(other[1].weight, first.weight)
    assert other[1].weight is other[0].weight


def test_buffers_are_weights_too():
    model = nn.BatchNorm1d(2)
    model(torch.randn(5, 2))
    assert {"running_mean", "running_var", "num_batches_tracked"} <= weights_of(model).keys()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop("bias"), "weight bias is missing"),
        (lambda w: w.update(more=torch.ones(1)), "weight more given, which this model does not have"),
        (lambda w: w.update(weight=torch.ones(3, 2)), r"weight weight is \[3, 2\], expected \[2, 3\]"),
        (lambda w: w.update(bias=torch.ones(1)), r"weight bias is \[1\], expected \[2\]"),  # copy_ would spread it
    ],
)
def test_weights_that_do_not_fit_are_named(change, said):
    model = nn.Linear(3, 2)
    weights = {name: tensor.detach().clone() for name, tensor in weights_of(model).items()}
    change(weights)
    with pytest.raises(CheckpointError, match=f"here: {said}"):
        load_weights(model, weights, "here")
