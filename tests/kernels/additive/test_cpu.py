"""Additive scores without a gradient: the reference's, by a faster tanh."""

import pytest
import torch

from regard.kernels import reference
from regard.kernels.additive import chunked


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("heads", [False, True])
def test_it_is_the_reference(dtype, heads):
    query, keys = torch.randn(3, 5, 8).to(dtype), torch.randn(3, 7, 8).to(dtype)
    vector = torch.randn(*([3] if heads else []), 8).to(dtype)
    found = chunked.scores_without_gradient(query, keys, vector)
    torch.testing.assert_close(found, reference.additive_scores(query, keys, vector), rtol=1e-5, atol=1e-5)


def test_the_tanh_of_any_number():
    x = torch.tensor([-torch.inf, -100.0, -3.0, -1e-4, 0.0, 1e-4, 3.0, 100.0, torch.inf])
    torch.testing.assert_close(chunked.tanh_(x.clone()), x.tanh(), rtol=0, atol=2e-7)
    assert chunked.tanh_(torch.tensor([torch.nan])).isnan()
    assert torch.equal(chunked.tanh_(x.double()), x.double().tanh())
