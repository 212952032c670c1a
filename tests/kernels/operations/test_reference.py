"""The specifications of the operations, number by number.

Dropout: zeros where a number is not kept, the others divided by the probability of that.
"""

import math

import pytest
import torch
import torch.nn.functional as F

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


# ---- the affine map and its sums: torch's own, and each sum the gradient that it is called


def test_the_affine_map_is_torchs():
    x, weight, bias = torch.randn(3, 7, 5).double(), torch.randn(4, 5).double(), torch.randn(4).double()
    torch.testing.assert_close(reference.linear(x, weight), F.linear(x, weight))
    torch.testing.assert_close(reference.linear(x, weight, bias), F.linear(x, weight, bias))


def test_the_sums_are_gradients():
    grad, ids = torch.randn(7, 5).double(), torch.tensor([3, 0, 3, 3, 1, 0, 3])
    bias, table = torch.zeros(5).double().requires_grad_(), torch.zeros(4, 5).double().requires_grad_()
    (slope,) = torch.autograd.grad(
        reference.linear(torch.zeros(7, 2).double(), torch.zeros(5, 2).double(), bias), bias, grad
    )
    torch.testing.assert_close(reference.column_sums(grad), slope)
    (slope,) = torch.autograd.grad(F.embedding(ids, table), table, grad)
    torch.testing.assert_close(reference.row_sums(grad, ids, 4), slope)
    torch.testing.assert_close(reference.row_sums(grad, ids, 4, 0.5), slope / 2)
    assert (
        reference.column_sums(grad.bfloat16()).dtype == reference.row_sums(grad.half(), ids, 4).dtype == torch.float32
    )


# ---- a residual with its norm, number by number


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


# ---- the top tokens: sorted by hand, row by row


END = 2


def test_what_may_come_in_order():
    scores = torch.tensor([[9.0, 8.0, 7.0, 1.0, 3.0]]).repeat(4, 1)
    early, forced = torch.tensor([False, True, False, True]), torch.tensor([-1, -1, 4, END])
    best, tokens, norm = reference.top_tokens(scores, 2, (0, 1), END, early, forced)
    assert tokens[0].tolist() == [2, 4]
    assert tokens[1].tolist() == [4, 3]  # END is too early
    assert (tokens[2, 0], tokens[3, 0]) == (4, END)  # whatever is forbidden otherwise
    assert best.tolist() == [[7.0, 3.0], [3.0, 1.0], [3.0, -math.inf], [7.0, -math.inf]]
    torch.testing.assert_close(norm, scores.logsumexp(-1))  # of all, forbidden ones too


# ---- the loss: the formula, one token at a time


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
