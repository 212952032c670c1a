"""Averages of weights against loops."""

import pytest
import torch
from torch import nn

from regard.training.average import MovingAverage, mean_weights


def test_a_moving_average_is_the_loop():
    weights = [nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(5))]
    average = MovingAverage(weights, 0.7)
    expected = [weight.detach().clone().double() for weight in weights]
    for step in range(1, 30):
        for i, weight in enumerate(weights):
            weight.data.normal_()
            decay = min(0.7, (1 + step) / (10 + step))
            expected[i] = decay * expected[i] + (1 - decay) * weight.detach().double()
        average.update(weights, step)
    for mine, its in zip(average.values, expected, strict=True):
        torch.testing.assert_close(mine.double(), its, rtol=1e-5, atol=1e-6)


def test_inside_the_weights_are_the_averages_and_outside_their_own():
    weight = nn.Parameter(torch.ones(2))
    average = MovingAverage([weight], 0.9)
    weight.data.fill_(5)
    with average.swap_in([weight]):
        assert weight.tolist() == [1, 1]
    assert weight.tolist() == [5, 5]

    with pytest.raises(ZeroDivisionError), average.swap_in([weight]):
        raise ZeroDivisionError
    assert weight.tolist() == [5, 5]
    assert average.values[0].tolist() == [1, 1]


def test_the_mean_is_taken_in_double_precision():
    parts = [{"w": torch.tensor([1e8]), "n": torch.tensor(3)}, {"w": torch.tensor([1.0]), "n": torch.tensor(5)}]
    parts += [{"w": torch.tensor([-1e8]), "n": torch.tensor(4)}]
    mean = mean_weights(parts)
    assert mean["w"].dtype == torch.float32
    assert float(mean["w"]) == pytest.approx(1 / 3)
    assert (mean["n"].dtype, int(mean["n"])) == (torch.int64, 4)
