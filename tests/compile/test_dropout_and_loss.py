"""While torch.compile traces, dropout is torch's and the loss the plain expression: one graph without breaks."""

import pytest
import torch

from regard.attention import Block
from regard.kernels import dropout, dropout_add, projection_loss, relu_dropout


@pytest.mark.parametrize("count", [1, 2])
def test_dropout_is_traced_whole(count):
    form = {1: lambda x: dropout(relu_dropout(x, 0.5), 0.5), 2: lambda x: dropout_add(x, x, 0.5)}[count]
    x = torch.ones(4000, requires_grad=True)
    y = torch.compile(form, backend="aot_eager", fullgraph=True)(x)
    y.sum().backward()
    assert 0.2 < float((y == y.max()).float().mean()) < 0.6
    torch.testing.assert_close(x.grad, y.detach())  # all forms are linear in a positive x


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_block_with_dropout_is_traced_whole(activation):
    block = Block(8, 2, dropout=0.5, feed_dropout=0.5, activation=activation)
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    x = torch.randn(2, 5, 8)
    compiled(x).sum().backward()
    block.eval()
    torch.testing.assert_close(compiled(x), block(x))


def test_the_loss_is_the_same_when_compiled():
    hidden, weight, bias = (torch.randn(size, requires_grad=True) for size in ((9, 4), (6, 4), (6,)))
    targets = torch.randint(6, (9,))
    compiled = torch.compile(projection_loss, backend="aot_eager", fullgraph=True)
    found, expected = (operation(hidden, weight, bias, targets, 0.1) for operation in (compiled, projection_loss))
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found[0], [hidden, weight, bias]),
        torch.autograd.grad(expected[0], [hidden, weight, bias]),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
