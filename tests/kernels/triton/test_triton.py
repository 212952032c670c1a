"""The one check for Triton."""

import importlib.util
import os

import pytest
import torch

from regard.kernels import triton
from regard.kernels.triton import eager_function


def test_whether_it_is_there():
    assert (importlib.util.find_spec("triton") is not None) == triton.INSTALLED
    assert triton.interpreted() == (os.environ.get("TRITON_INTERPRET") == "1")


# ---- a kernel with its backward pass for eager calls


def test_only_the_first_output_has_a_gradient():
    def compute(x, factor):
        return x * factor, x.detach() + 1

    def keep(ctx, inputs, output):
        ctx.save_for_backward(output[1])
        ctx.factor = inputs[1]

    def gradients(ctx, grad):
        (more,) = ctx.saved_tensors
        assert torch.equal(more, torch.full((3,), 3.0))
        return grad * ctx.factor, None

    x = torch.full((3,), 2.0, requires_grad=True)
    result, more = eager_function(compute, keep, gradients).apply(x, 5.0)
    assert not more.requires_grad
    (slope,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    assert slope.tolist() == [5.0] * 3
    with pytest.raises(RuntimeError, match="once_differentiable|does not require grad"):
        torch.autograd.grad(slope.sum(), x)
