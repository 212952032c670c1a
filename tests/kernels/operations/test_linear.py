"""Which backend multiplies: the packed product for large float32 weights on a CPU, without gradients or autocast."""

import threading

import pytest
import torch
import torch.nn.functional as F

from regard.kernels.operations.linear import (
    LARGE,
    WORK,
    Linear,
    is_packed,
    linear,
    pack_weights,
    store,
)


def test_what_is_packed(monkeypatch):
    x, weight = torch.zeros(2, 300), torch.zeros(7, 300, requires_grad=True)
    assert not is_packed(x, weight)
    assert not is_packed(x.requires_grad_(), weight.detach())
    with torch.no_grad():
        assert is_packed(x, weight)
        with torch.autocast("cpu"):
            assert not is_packed(x, weight)
        for one, other in ((x.double(), weight), (x, weight.bfloat16()), (x.to("meta"), weight)):
            assert not is_packed(one, other)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert not is_packed(x, weight)


def test_gradients_and_other_numbers_go_the_plain_way():
    weight = torch.randn(300, 300, requires_grad=True)
    with pack_weights():
        x = torch.randn(2, 300)
        linear(x, weight).sum().backward()
        torch.testing.assert_close(weight.grad, x.sum(0).expand(300, -1))
        assert linear(x.double(), weight.detach().double()).dtype == torch.float64
        assert linear(x[:0], weight.detach()).shape == (0, 300)
        assert store.weights == {}


# ---- the packed product against the reference: weights are packed once, in one thread, inside of a block


SHAPES = [(1, 256, 300), (5, 257, 511), (63, 512, 129), (7, 300, 256), (1, 512, 512), (2, 256, 256), (90, 200, 300)]


@pytest.mark.parametrize(("rows", "width", "out"), SHAPES)
@pytest.mark.parametrize("biased", [False, True])
def test_it_is_the_product(rows, width, out, biased):
    x, weight = torch.randn(rows, 1, width), torch.randn(out, width)
    bias = torch.randn(out) if biased else None
    with pack_weights():
        for given in (x, x[:, 0], x.expand(-1, 3, -1), torch.randn(rows, 2 * width)[:, ::2]):
            torch.testing.assert_close(linear(given, weight, bias), F.linear(given, weight, bias), atol=1e-3, rtol=1e-4)
        some = torch.randn(2 * out, 3 * width)[out:, width : 2 * width]  # rows and columns of a larger tensor
        torch.testing.assert_close(linear(x, some, bias), F.linear(x, some, bias), atol=1e-3, rtol=1e-4)
        packed = [weight.numel() >= LARGE and count * weight.numel() >= WORK for count in (3 * rows, rows)]
        assert len(store.weights) == sum(packed)


def test_weights_are_packed_once_and_only_in_the_block():
    layer, x = Linear(512, 512), torch.randn(3, 512)
    with torch.no_grad(), pack_weights():
        before = layer(x)
        with pack_weights():  # nesting changes nothing
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
    with torch.no_grad(), pack_weights():  # packed anew, so changes in between take effect
        torch.testing.assert_close(layer(x), 2 * before)


def test_an_error_ends_the_block():
    with pytest.raises(ZeroDivisionError), pack_weights():
        1 / 0  # noqa: B018
    assert store.weights is None


def test_without_onednn_nothing_is_packed(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with torch.no_grad(), pack_weights():
        assert store.weights is None
        layer, x = Linear(512, 512), torch.randn(3, 512)
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
