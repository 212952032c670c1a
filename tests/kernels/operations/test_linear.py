"""Who multiplies: the packed product for large weights in single precision on a CPU, and only where nothing else is."""

import pytest
import torch

from regard.kernels.operations.linear import CPU, LARGE, describe, linear, pack_weights, store
from regard.kernels.table import COMPILING, Request

LAID = Request("cpu", (torch.float32, torch.float32), (), {"input": 300, "weight": LARGE})
PAYS = f"packing pays for weights of at least {LARGE} numbers and an input that is not empty"
REFUSED = {
    "device": ({"device": "cuda"}, "it runs on cpu, not on cuda"),
    "input": ({"dtypes": (torch.float64, torch.float32)}, "it takes float32, not float64"),
    "weight": ({"dtypes": (torch.float32, torch.bfloat16)}, "it takes float32, not bfloat16"),
    "small": ({"sizes": {"input": 300, "weight": LARGE - 1}}, PAYS),
    "empty": ({"sizes": {"input": 0, "weight": LARGE}}, PAYS),
    "compiled": ({"features": (COMPILING,)}, "it does not serve tracing by torch.compile"),
    "new": ({"features": ("something new",)}, "it does not serve something new"),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(change, words):
    assert CPU.serves(LAID)
    assert CPU.refusal(LAID._replace(**change)) == words
    assert not CPU.serves(LAID._replace(**change))


def test_calls_are_described():
    x, weight = torch.zeros(2, 300), torch.zeros(7, 300, requires_grad=True)
    assert describe(x, weight).features == ("a backward pass",)
    assert describe(x.requires_grad_(), weight.detach()).features == ("a backward pass",)
    with torch.no_grad():
        assert describe(x, weight) == Request("cpu", (torch.float32, torch.float32), (), {"input": 600, "weight": 2100})
        with torch.autocast("cpu"):
            assert describe(x, weight).features == ("autocast",)


def test_gradients_and_other_numbers_go_the_plain_way():
    weight = torch.randn(300, 300, requires_grad=True)
    with pack_weights():
        x = torch.randn(2, 300)
        linear(x, weight).sum().backward()
        torch.testing.assert_close(weight.grad, x.sum(0).expand(300, -1))
        assert linear(x.double(), weight.detach().double()).dtype == torch.float64
        assert linear(x[:0], weight.detach()).shape == (0, 300)
        assert store.weights == {}
