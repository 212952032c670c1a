"""Additive scores in chunks equal the reference, forward and every gradient."""

import pytest
import torch
from torch.autograd import gradcheck

from regard.kernels import reference
from regard.kernels.operations import additive as chunked

SHAPES = [((), 1, 1, 1), ((1,), 7, 13, 3), ((2, 3), 5, 63, 7), ((4,), 33, 2, 65)]


def draw(batch, n, m, h, dtype=torch.float64, heads=None):
    vector = torch.randn(h if heads is None else (heads, h), dtype=dtype) if heads else torch.randn(h, dtype=dtype)
    tensors = torch.randn(*batch, n, h, dtype=dtype), torch.randn(*batch, m, h, dtype=dtype), vector
    return [tensor.requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("chunk", [1, 40, 700, 1 << 20])
@pytest.mark.parametrize("shape", SHAPES)
def test_chunks_equal_the_reference(monkeypatch, shape, chunk):
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    inputs = draw(*shape)
    expected, found = reference.additive_scores(*inputs), chunked.scores(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    cotangent = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(found, inputs, cotangent), torch.autograd.grad(expected, inputs, cotangent), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_a_vector_a_head(monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK", 50)
    inputs = draw((2, 3), 4, 5, 6, heads=3)
    cotangent = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    expected, found = reference.additive_scores(*inputs), chunked.scores(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad(found, inputs, cotangent), torch.autograd.grad(expected, inputs, cotangent), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_batches_broadcast():
    query, keys, vector = torch.randn(1, 3, 4), torch.randn(5, 6, 4), torch.randn(4)
    torch.testing.assert_close(chunked.scores(query, keys, vector), reference.additive_scores(query, keys, vector))


def test_gradients_are_the_numerical_ones():
    assert gradcheck(chunked.scores, draw((2,), 3, 4, 5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(dtype):
    """Scores of half precision are computed in float32, and so are the chunks."""
    exact = draw((2,), 17, 19, 64)
    half = [x.detach().to(dtype).requires_grad_() for x in exact]
    wide = [x.detach().double() for x in half]
    found = chunked.scores(*half)
    plain = reference.additive_scores(*half)
    assert found.dtype == plain.dtype == torch.float32
    for scores in (found, plain):
        torch.testing.assert_close(scores.double(), reference.additive_scores(*wide), rtol=1e-5, atol=1e-5)
    found.backward(torch.ones_like(found))
    assert all(x.grad is not None and x.grad.dtype == dtype and torch.isfinite(x.grad).all() for x in half)


def test_the_operation_says_its_shape_to_a_compiler():
    inputs = [x.detach().flatten(0, -3) if x.ndim > 2 else x.detach() for x in draw((2,), 3, 4, 5)]
    torch.library.opcheck(chunked.chunked_scores, (inputs[0], inputs[1], inputs[2].expand(2, -1).contiguous()))


@pytest.mark.parametrize(("rows", "queries", "numbers"), [(1, 1, 1), (8, 5, 40), (3, 100, 1000), (2, 7, 1 << 20)])
def test_chunks_stay_within_their_size(rows, queries, numbers):
    together, some = chunked.chunk_sizes(rows, queries, numbers, 1000)
    assert 1 <= together <= rows
    assert 1 <= some <= queries
    assert together * some * numbers <= max(1000, numbers)  # at least one query
    assert together == 1 or some == queries  # several rows only if whole


# ---- additive scores without a gradient equal the reference, by a faster tanh


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
