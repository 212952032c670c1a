"""The specification of the loss: the formula, one token at a time."""

import pytest
import torch

from regard.kernels.operations import reference


def draw(t, d, v, dtype=torch.float64, bias=True):
    hidden, weight = torch.randn(t, d, dtype=dtype), torch.randn(v, d, dtype=dtype)
    inputs = [hidden.requires_grad_(), weight.requires_grad_()]
    return [*inputs, torch.randn(v, dtype=dtype).requires_grad_() if bias else None], torch.randint(v, (t,))


def definition(hidden, weight, bias, targets, smoothing):
    """The formula, one token at a time."""
    total = plain = 0.0
    for x, y in zip(hidden, targets.tolist(), strict=True):
        logits = weight @ x + (0 if bias is None else bias)
        surprise = -(logits - torch.logsumexp(logits, 0))
        total = total + (1 - smoothing) * surprise[y] + smoothing * surprise.mean()
        plain = plain + surprise[y].detach()
    return total, plain


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_reference_is_the_formula(smoothing):
    inputs, targets = draw(7, 3, 5)
    for one, other in zip(
        reference.projection_loss(*inputs, targets, smoothing), definition(*inputs, targets, smoothing), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_targets_below_zero_count_nothing(smoothing):
    inputs, targets = draw(20, 5, 33)
    padded = targets.clone()
    padded[[0, 3, 4, 19]] = torch.tensor([-1, -1, -100, -7])
    real = padded >= 0
    total, plain = reference.projection_loss(*inputs, padded, smoothing)
    slopes = torch.autograd.grad(total, inputs)
    alone, alone_plain = definition(inputs[0][real], *inputs[1:], targets[real], smoothing)
    torch.testing.assert_close((total, plain), (alone, alone_plain))
    torch.testing.assert_close(slopes, torch.autograd.grad(alone, inputs))
    nothing, _ = reference.projection_loss(*inputs, torch.full_like(targets, -1), smoothing)
    assert nothing == 0
    assert not any(slope.any() for slope in torch.autograd.grad(nothing, inputs))
