"""The specification of dropout: zeros where a number is not kept, the others divided by the probability of that."""

import torch

from regard.kernels.dropout import reference


def test_numbers_are_dropped_or_scaled():
    x, y, keep = torch.tensor([1.0, -2.0, 3.0]), torch.ones(3), torch.tensor([True, True, False])
    assert reference.dropout(x, keep, 0.5).tolist() == [2.0, -4.0, 0.0]
    assert reference.dropout_add(y, x, keep, 0.5).tolist() == [3.0, -3.0, 1.0]
    assert reference.relu_dropout(x, keep, 0.5).tolist() == [2.0, 0.0, 0.0]
    assert reference.dropout(torch.tensor([torch.nan]), torch.tensor([False]), 0.5).tolist() == [0.0]
