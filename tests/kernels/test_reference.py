"""The reference's softmax, against its definition."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from regard.kernels.reference import softmax


def test_softmax_equals_its_definition():
    scores, mask = torch.randn(3, 7, dtype=torch.float64), torch.rand(3, 7) > 0.4
    mask[1] = False
    weights = softmax(scores, mask, temperature=0.7)
    for row in range(3):
        seen = [math.exp(float(scores[row, j]) / 0.7) if mask[row, j] else 0.0 for j in range(7)]
        expected = [x / sum(seen) if sum(seen) else 0.0 for x in seen]
        torch.testing.assert_close(weights[row], torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_softmax_gradients_with_an_empty_row():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert gradcheck(lambda x: softmax(x, mask), torch.randn(2, 3, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_softmax_at_large_scores_is_finite_and_in_its_dtype(dtype):
    scores = torch.tensor([[1e4, -1e4, 1e4], [-1e4, -1e4, -1e4]], dtype=dtype, requires_grad=True)
    weights = softmax(scores, torch.tensor([[True, True, True], [True, False, True]]))
    assert weights.dtype == dtype
    torch.testing.assert_close(weights.float(), torch.tensor([[0.5, 0.0, 0.5], [0.5, 0.0, 0.5]]))
    weights.sum().backward()
    assert torch.isfinite(scores.grad).all()
