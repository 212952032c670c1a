"""The specification of a residual with its norm, number by number."""

import math

import torch

from regard.kernels.operations import reference


def test_the_sum_and_its_norm():
    x, y, bias = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, -1.0])
    weight, shift = torch.tensor([2.0, 3.0]), torch.tensor([0.5, 0.0])
    keep = torch.tensor([[True, False]])
    together, normed = reference.residual(x, y, bias, keep, 0.5, weight, shift, 0.0)
    assert together.tolist() == [[1.0 + (3.0 + 1.0) / 0.5, 2.0]]
    # 9 and 2: the mean is 5.5, the deviation 3.5
    torch.testing.assert_close(normed, torch.tensor([[1.0 * 2.0 + 0.5, -1.0 * 3.0]]))
    together, normed = reference.residual(x, y, None, None, 1.0, None, None, 1e-5)
    assert together.tolist() == [[4.0, 6.0]]
    assert normed is None


def test_eps_stands_under_the_root():
    x, one = torch.tensor([[1.0, -1.0]]), torch.ones(2)
    _, normed = reference.residual(x, torch.zeros(1, 2), None, None, 1.0, one, None, 3.0)
    torch.testing.assert_close(normed, torch.tensor([[1.0, -1.0]]) / math.sqrt(1.0 + 3.0))


def test_the_sum_keeps_the_streams_dtype():
    together, _ = reference.residual(torch.zeros(1, 2), torch.zeros(1, 2).bfloat16(), None, None, 1.0, None, None, 0.0)
    assert together.dtype == torch.float32
