"""Which backend computes the loss: a kernel on CUDA, chunks elsewhere, the plain expression for a compiler."""

import pytest
import torch
import torch.nn.functional as F
from oracles import agree
from torch.autograd import gradcheck

from regard.errors import ArgumentError, ShapeError
from regard.kernels import reference
from regard.kernels.operations.projection_loss import projection_loss

# ---- projection and loss in chunks: the plain expression, forward and every gradient


CHUNKS = [1, 3, 7, 64, None]
SHAPES = [(1, 1, 1), (7, 3, 5), (63, 8, 2), (10, 4, 65)]


def draw(t, d, v, dtype=torch.float64, bias=True):
    hidden, weight = torch.randn(t, d, dtype=dtype), torch.randn(v, d, dtype=dtype)
    inputs = [hidden.requires_grad_(), weight.requires_grad_()]
    return [*inputs, torch.randn(v, dtype=dtype).requires_grad_() if bias else None], torch.randint(v, (t,))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_chunks_equal_the_reference(shape, chunk, smoothing, bias):
    inputs, targets = draw(*shape, bias=bias)
    found = projection_loss(*inputs, targets, smoothing, chunk)
    expected = reference.projection_loss(*inputs, targets, smoothing)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert not found[1].requires_grad
    given = [tensor for tensor in inputs if tensor is not None]
    agree(found[0], expected[0], given, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_targets_below_zero_count_nothing(smoothing):
    inputs, targets = draw(20, 5, 33)
    padded = targets.clone()
    padded[[0, 3, 4, 19]] = torch.tensor([-1, -1, -100, -7])
    real = padded >= 0
    total, plain = projection_loss(*inputs, padded, smoothing, 6)
    slopes = torch.autograd.grad(total, inputs)
    alone, alone_plain = reference.projection_loss(inputs[0][real], *inputs[1:], targets[real], smoothing)
    torch.testing.assert_close((total, plain), (alone, alone_plain))
    torch.testing.assert_close(slopes, torch.autograd.grad(alone, inputs))
    nothing, _ = projection_loss(*inputs, torch.full_like(targets, -1), smoothing, 6)
    assert nothing == 0
    assert not any(slope.any() for slope in torch.autograd.grad(nothing, inputs))


def test_gradients_are_the_numerical_ones():
    inputs, targets = draw(5, 3, 7)
    assert gradcheck(lambda *given: projection_loss(*given, targets, 0.1, 2)[0], inputs)


def test_single_precision_is_as_good_as_torchs():
    inputs, targets = draw(300, 16, 501, dtype=torch.float32)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = torch.autograd.grad(reference.projection_loss(*exact, targets, 0.1)[0], exact)
    found = torch.autograd.grad(projection_loss(*inputs, targets, 0.1, 100)[0], inputs)
    plain = torch.autograd.grad(reference.projection_loss(*inputs, targets, 0.1)[0], inputs)
    for one, other, right in zip(found, plain, expected, strict=True):
        assert float((one - right).abs().max()) < max(2 * float((other - right).abs().max()), 1e-5)


def test_large_logits_do_not_overflow():
    hidden, weight = torch.tensor([[1e4], [-1e4]]), torch.tensor([[1.0], [-1.0], [0.5]])
    total, _ = projection_loss(hidden, weight, None, torch.tensor([1, 0]))
    torch.testing.assert_close(total, torch.tensor(4e4))


def test_a_tied_weight_used_elsewhere_gets_both_gradients():
    inputs, targets = draw(9, 4, 6)
    _, weight, bias = inputs

    def loss(operation):
        embedded = F.embedding(targets, weight).tanh()
        return operation(embedded, weight, bias, targets.flip(0), 0.1)[0] + weight.square().sum()

    found = torch.autograd.grad(loss(lambda *given: projection_loss(*given, 4)), [weight, bias])
    expected = torch.autograd.grad(loss(reference.projection_loss), [weight, bias])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("asked", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_what_is_asked_for_is_differentiated(asked):
    inputs, targets = draw(9, 4, 6)
    inputs = [tensor.detach().requires_grad_(need) for tensor, need in zip(inputs, asked, strict=True)]
    given = [tensor for tensor in inputs if tensor.requires_grad]
    torch.testing.assert_close(
        torch.autograd.grad(projection_loss(*inputs, targets, 0.1, 4)[0], given),
        torch.autograd.grad(reference.projection_loss(*inputs, targets, 0.1)[0], given),
    )


def test_without_gradients_it_is_the_same_sum():
    inputs, targets = draw(9, 4, 6)
    expected = projection_loss(*inputs, targets, 0.1)
    with torch.no_grad():
        found = projection_loss(*inputs, targets, 0.1)
    assert found[0].grad_fn is None
    torch.testing.assert_close(found, tuple(each.detach() for each in expected))


def test_it_can_be_used_twice_and_differentiated_twice_over():
    inputs, targets = draw(9, 4, 6)
    total = projection_loss(*inputs, targets)[0]
    once = torch.autograd.grad(total, inputs, retain_graph=True)
    again = torch.autograd.grad(total, inputs)
    torch.testing.assert_close(once, again, rtol=0, atol=0)
    both = projection_loss(*inputs, targets)[0] + projection_loss(*inputs, targets)[0]
    torch.testing.assert_close(tuple(2 * one for one in once), torch.autograd.grad(both, inputs))


def test_a_second_derivative_is_refused_and_not_wrong():
    inputs, targets = draw(9, 4, 6)
    (slope,) = torch.autograd.grad(projection_loss(*inputs, targets)[0], inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        slope.sum().backward()
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(projection_loss(*inputs, targets)[0] * factor, inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_no_tokens_cost_nothing():
    inputs, targets = draw(0, 4, 6)
    total, plain = projection_loss(*inputs, targets, 0.1)
    assert total == 0
    assert plain == 0
    assert not any(gradient.any() for gradient in torch.autograd.grad(total, inputs))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_autocast_to_bfloat16(smoothing):
    inputs, targets = draw(50, 32, 40, dtype=torch.float32)
    expected = reference.projection_loss(*inputs, targets, smoothing)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, _ = projection_loss(*inputs, targets, smoothing, 16)
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, expected, rtol=0.01, atol=0)
    for one, other in zip(torch.autograd.grad(total, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).norm()) < 0.02 * float(other.norm())


def test_bfloat16_parameters():
    inputs, targets = draw(50, 32, 40, dtype=torch.bfloat16)
    wide = [tensor.detach().float().requires_grad_() for tensor in inputs]
    total, expected = projection_loss(*inputs, targets, 0.1, 16)[0], reference.projection_loss(*wide, targets, 0.1)[0]
    assert total.dtype == torch.float32
    for one, other in zip(torch.autograd.grad(total, inputs), torch.autograd.grad(expected, wide), strict=True):
        assert one.dtype == torch.bfloat16
        assert float((one.float() - other).norm()) < 0.02 * float(other.norm())


def test_hidden_that_is_not_contiguous():
    inputs, targets = draw(6, 9, 4)
    turned = inputs[0].detach().t()[:6].requires_grad_()  # [6 6] with transposed strides
    weight = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    found = torch.autograd.grad(projection_loss(turned, weight, None, targets, 0.1, 4)[0], [turned, weight])
    expected = torch.autograd.grad(reference.projection_loss(turned, weight, None, targets, 0.1)[0], [turned, weight])
    torch.testing.assert_close(found, expected)


@pytest.mark.unchecked
def test_wrong_arguments_are_named():
    hidden, weight, bias, targets = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7), torch.randint(7, (5,))
    with pytest.raises(ShapeError, match=r"hidden: \[5, 2\] given, expected \[t d\] beside a weight \[7, 3\]"):
        projection_loss(hidden[:, :2], weight, bias, targets)
    with pytest.raises(ShapeError, match=r"targets: \[4\] given, expected one per token, \[5\]"):
        projection_loss(hidden, weight, bias, targets[:4])
    with pytest.raises(ArgumentError, match="smoothing: 1.0 given"):
        projection_loss(hidden, weight, bias, targets, 1.0)
    with pytest.raises(ArgumentError, match="chunk: 0 given"):
        projection_loss(hidden, weight, bias, targets, 0.1, 0)
