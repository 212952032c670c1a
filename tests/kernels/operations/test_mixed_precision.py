"""Products in half precision with weights in single precision: against the reference, gradients by differences."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.kernels.operations.mixed_precision import (
    HalfCopies,
    half_linear,
    half_linear_pair,
    half_linear_with_input,
    to_half,
)


def made(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("biased", [True, False])
def test_products_and_gradients(tokens, biased):
    x, memory, weight = made(tokens, 5), made(3, 5), made(6, 5)
    bias = made(6) if biased else None
    torch.testing.assert_close(half_linear(x, weight, bias), F.linear(x, weight, bias))
    one, other, *on = half_linear_pair(x, memory, weight, bias, 2)
    assert torch.equal(on[0], x)
    assert torch.equal(on[1], memory)
    torch.testing.assert_close(one, F.linear(x, weight, bias)[:, :2])
    torch.testing.assert_close(other, F.linear(memory, weight, bias)[:, 2:])
    given = (x, weight, bias) if biased else (x, weight)
    assert torch.autograd.gradcheck(half_linear, given)
    rest = (bias,) if biased else ()
    assert torch.autograd.gradcheck(lambda *given: [each * 1.0 for each in half_linear_with_input(*given)], given)
    # The backward adds to a returned input's gradient in place: copy it, as the checker reads it again.
    assert torch.autograd.gradcheck(
        lambda x, m, w, b=None: [each * 1.0 for each in half_linear_pair(x, m, w, b, 2)], (x, memory, weight, *rest)
    )


def test_gradients_of_weights_are_in_their_own_precision():
    x, weight, bias = made(9, 5, dtype=torch.bfloat16), made(6, 5, dtype=torch.float32), made(6, dtype=torch.float32)
    half_linear(x, weight, bias).sum().backward()
    assert [each.grad.dtype for each in (x, weight, bias)] == [torch.bfloat16, torch.float32, torch.float32]
    exact = x.detach().double().sum(0).expand(6, -1)
    torch.testing.assert_close(weight.grad.double(), exact, rtol=1e-5, atol=1e-5)


def test_copies_are_of_the_weights_as_they_are():
    weights = [nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(3))]
    copies = HalfCopies(weights, torch.bfloat16)
    for _ in range(2):
        with copies.used():
            for weight, copy in zip(weights, copies.copies, strict=True):
                assert to_half(weight, torch.bfloat16) is copy
                assert torch.equal(copy, weight.detach().to(torch.bfloat16))
            assert to_half(weights[0], torch.float16).dtype == torch.float16
        with torch.no_grad():
            weights[0].add_(1.0)
    assert to_half(weights[0], torch.bfloat16) is not copies.copies[0]  # they may be outdated by now


def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same():
    x, memory, weight, bias = made(4, 5), made(3, 5), made(6, 5), made(6)
    frozen, shift = weight.detach(), bias.detach()
    for given, other in ((weight, shift), (frozen, bias), (frozen, shift)):
        for each in (x, memory, weight, bias):
            each.grad = None
        one, two, *_ = half_linear_pair(x, memory, given, other, 2)
        (half_linear(x, given, other).sum() + one.sum() + two.sum()).backward()
        found = [each.grad for each in (x, memory, given, other)]
        leaves = [each.detach().requires_grad_() for each in (x, memory, weight, bias)]
        whole, rest = (F.linear(each, *leaves[2:]) for each in leaves[:2])
        (whole.sum() + whole[:, :2].sum() + rest[:, 2:].sum()).backward()
        for mine, leaf, tensor in zip(found, leaves, (x, memory, given, other), strict=True):
            assert (mine is None) == (not tensor.requires_grad)
            if mine is not None:
                torch.testing.assert_close(mine, leaf.grad)
