"""The packed product against torch's own, and where it serves."""

import threading

import pytest
import torch
import torch.nn.functional as F

from regard.kernels.linear import Linear, linear, packed
from regard.kernels.linear.cpu import LARGE, served, store

SHAPES = [(1, 256, 300), (5, 257, 511), (63, 512, 129), (7, 300, 256)]


@pytest.mark.parametrize(("rows", "width", "out"), SHAPES)
@pytest.mark.parametrize("biased", [False, True])
def test_it_is_the_product(rows, width, out, biased):
    x, weight = torch.randn(rows, 1, width), torch.randn(out, width)
    bias = torch.randn(out) if biased else None
    assert served(x, weight) == (weight.numel() >= LARGE)
    with packed():
        for given in (x, x[:, 0], x.expand(-1, 3, -1), torch.randn(rows, 2 * width)[:, ::2]):
            torch.testing.assert_close(linear(given, weight, bias), F.linear(given, weight, bias), atol=1e-3, rtol=1e-4)
        some = torch.randn(2 * out, 3 * width)[out:, width : 2 * width]  # rows and columns of a larger one
        torch.testing.assert_close(linear(x, some, bias), F.linear(x, some, bias), atol=1e-3, rtol=1e-4)


def test_weights_are_packed_once_and_only_in_the_block():
    layer, x = Linear(512, 512), torch.randn(3, 512)
    with torch.no_grad(), packed():
        before = layer(x)
        with packed():  # within another it is the same
            layer(x)
        assert len(store.weights) == 1
        there = []
        other = threading.Thread(target=lambda: there.append(getattr(store, "weights", None)))
        other.start()
        other.join()
        assert there == [None]
    assert store.weights is None
    with torch.no_grad():
        layer.weight.mul_(2)
        layer.bias.mul_(2)
    with torch.no_grad(), packed():  # packed anew: what changed in between is seen
        torch.testing.assert_close(layer(x), 2 * before)


def test_an_error_ends_the_block():
    with pytest.raises(ZeroDivisionError), packed():
        1 / 0  # noqa: B018
    assert store.weights is None


def test_gradients_and_other_numbers_go_the_plain_way():
    weight = torch.randn(300, 300, requires_grad=True)
    with packed():
        x = torch.randn(2, 300)
        linear(x, weight).sum().backward()
        torch.testing.assert_close(weight.grad, x.sum(0).expand(300, -1))
        assert linear(x.double(), weight.detach().double()).dtype == torch.float64
        assert linear(x[:0], weight.detach()).shape == (0, 300)
        assert store.weights == {}
