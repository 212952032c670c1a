"""The specification of the affine map and its sums: torch's own, and each sum the gradient that it is called."""

import torch
import torch.nn.functional as F

from regard.kernels.operations import reference


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
