"""Weights by name: each once, and errors name those that do not fit; averages against loops."""

import pytest
import torch
from torch import nn

from regard.errors import CheckpointError
from regard.training.weights import load_weights, mean_weights, swap_values, weights_of


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
        (lambda w: w.update(bias=torch.ones(1)), r"weight bias is \[1\], expected \[2\]"),  # copy_ would broadcast it
    ],
)
def test_weights_that_do_not_fit_are_named(change, said):
    model = nn.Linear(3, 2)
    weights = {name: tensor.detach().clone() for name, tensor in weights_of(model).items()}
    change(weights)
    with pytest.raises(CheckpointError, match=f"here: {said}"):
        load_weights(model, weights, "here")


# ---- averages


def test_inside_the_weights_are_the_averages_and_outside_their_own():
    weight, averages = nn.Parameter(torch.full((2,), 5.0)), [torch.ones(2)]
    with swap_values([weight], averages):
        assert weight.tolist() == [1, 1]
    assert weight.tolist() == [5, 5]
    with pytest.raises(ZeroDivisionError), swap_values([weight], averages):
        raise ZeroDivisionError
    assert weight.tolist() == [5, 5]
    assert averages[0].tolist() == [1, 1]


def test_the_mean_is_taken_in_double_precision():
    parts = [{"w": torch.tensor([1e8]), "n": torch.tensor(3)}, {"w": torch.tensor([1.0]), "n": torch.tensor(5)}]
    parts += [{"w": torch.tensor([-1e8]), "n": torch.tensor(4)}]
    mean = mean_weights(parts)
    assert mean["w"].dtype == torch.float32
    assert float(mean["w"]) == pytest.approx(1 / 3)
    assert (mean["n"].dtype, int(mean["n"])) == (torch.int64, 4)
