"""The specifications, against their definitions and against loops."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.autograd import gradcheck

from regard.kernels import reference
from regard.kernels.reference import Call, softmax
from regard.kernels.span_limits import SpanLimits, Window


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


# ---- bilinear scores, against a loop


def test_it_is_a_product_of_each_pair():
    query, keys = torch.randn(2, 3, 5).double(), torch.randn(2, 4, 5).double()
    found = reference.bilinear_scores(query, keys, 0.3)
    for b in range(2):
        for i in range(3):
            for j in range(4):
                torch.testing.assert_close(found[b, i, j], 0.3 * sum(query[b, i] * keys[b, j]))
    torch.testing.assert_close(reference.bilinear_scores(query, keys), found / 0.3)


def test_half_precision_is_scored_in_single():
    huge = torch.full((1, 8), 200.0, dtype=torch.float16)
    assert reference.bilinear_scores(huge, huge).item() == 320_000


# ---- additive scores, against a loop


def test_it_is_the_formula_for_each_pair():
    query, keys = torch.randn(2, 3, 5).double(), torch.randn(2, 4, 5).double()
    vector, heads = torch.randn(5).double(), torch.randn(2, 5).double()
    found, apart = reference.additive_scores(query, keys, vector), reference.additive_scores(query, keys, heads)
    for b in range(2):
        for i in range(3):
            for j in range(4):
                hidden = torch.tanh(query[b, i] + keys[b, j])
                torch.testing.assert_close(found[b, i, j], sum(vector * hidden))
                torch.testing.assert_close(apart[b, i, j], sum(heads[b] * hidden))


# ---- local attention, a query at a time: the dense expression with its mask and gate


ROWS, N, M, D = 2, 5, 13, 4
LIMITS = {
    "alone": {},
    "lengths": {"lengths": torch.tensor([13, 4])},
    "causal": {"causal": 2},
    "causal rows": {"causal": torch.tensor([-3, 9]), "lengths": torch.tensor([0, 13])},
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
@pytest.mark.parametrize("scored", ["bilinear", "additive"])
@pytest.mark.parametrize("window", [Window(2), Window(1, start=torch.tensor([3, 11])), Window(3, sigma=1.5), Window(0)])
def test_it_is_the_dense_expression(limits, scored, window):
    inputs = [torch.randn(ROWS, count, D).double().requires_grad_() for count in (N, M, M)]
    if window.sigma is not None:  # centres all over the sentence and beyond, which learn
        inputs.append((torch.rand(ROWS, N).double() * (M + 4) - 2).requires_grad_())
        window = replace(window, centre=inputs[-1])
    vector = torch.randn(D).double().requires_grad_() if scored == "additive" else None
    score = {"scale": 0.7} if vector is None else {"vector": vector}
    compare = (
        partial(reference.bilinear_scores, scale=0.7)
        if vector is None
        else partial(reference.additive_scores, vector=vector)
    )
    call = Call(
        *inputs[:3],
        SpanLimits(N, M, torch.device("cpu"), (ROWS,), window=window, **limits),
        compare=compare,
        weigh=lambda scores, mask: softmax(scores, mask, 0.5),
    )
    wanted = reference.attend(call)
    found = reference.attend_window(*inputs[:3], window, temperature=0.5, **score, **limits)
    torch.testing.assert_close(found, wanted)
    learned = [*inputs, *([] if vector is None else [vector])]
    cotangent = torch.randn_like(wanted)
    torch.testing.assert_close(
        torch.autograd.grad(found, learned, cotangent), torch.autograd.grad(wanted, learned, cotangent)
    )
