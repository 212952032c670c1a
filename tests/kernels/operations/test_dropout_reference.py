"""The specification of dropout: zeros where a number is not kept, the others divided by the probability of that."""

import math

import torch

from regard.kernels.operations import reference


def test_numbers_are_dropped_or_scaled():
    x, y, keep = torch.tensor([1.0, -2.0, 3.0]), torch.ones(3), torch.tensor([True, True, False])
    assert reference.dropout(x, keep, 0.5).tolist() == [2.0, -4.0, 0.0]
    assert reference.dropout_add(y, x, keep, 0.5).tolist() == [3.0, -3.0, 1.0]
    assert reference.relu_dropout(x, keep, 0.5).tolist() == [2.0, 0.0, 0.0]
    assert reference.dropout(torch.tensor([torch.nan]), torch.tensor([False]), 0.5).tolist() == [0.0]


def test_smooth_activations_are_their_formulas():
    """Each number by the standard library's own functions."""
    x, keep = torch.tensor([-3.0, -0.5, 0.0, 2.0], dtype=torch.float64), torch.tensor([True, True, True, True])
    gelu = [number * 0.5 * math.erfc(-number / math.sqrt(2)) for number in x.tolist()]
    silu = [number / (1 + math.exp(-number)) for number in x.tolist()]
    for found, expected in ((reference.gelu_dropout, gelu), (reference.silu_dropout, silu)):
        exact = torch.tensor(expected, dtype=torch.float64)
        torch.testing.assert_close(found(x, keep, 1.0), exact)
        torch.testing.assert_close(found(x, keep, 0.5), 2 * exact)
        assert not found(x, ~keep, 0.5).any()
