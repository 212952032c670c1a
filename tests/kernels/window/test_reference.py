"""The specification of local attention, a query at a time: the dense expression with its mask and gate."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from regard.kernels import reference
from regard.kernels.reference import Call, softmax
from regard.kernels.span_limits import SpanLimits, Window

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
