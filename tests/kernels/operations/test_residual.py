"""Who adds a residual: one kernel on CUDA for rows that fit, torch's operations elsewhere."""

import pytest
import torch

from regard.errors import ShapeError
from regard.kernels.operations import reference
from regard.kernels.operations.residual import RESIDUAL, WIDEST, describe, residual
from regard.kernels.table import COMPILING, Request

TRITON = RESIDUAL.rows[0]
ON_CUDA = Request("cuda", (torch.float32, torch.bfloat16), (), {"width": WIDEST})
REFUSED = {
    "device": ({"device": "cpu"}, "it runs on cuda, not on cpu"),
    "stream": ({"dtypes": (torch.float64, torch.float32)}, "it takes float32, float16 and bfloat16, not float64"),
    "branch": ({"dtypes": (torch.float32, torch.float64)}, "it takes float32, float16 and bfloat16, not float64"),
    "width": ({"sizes": {"width": WIDEST + 1}}, f"width: {WIDEST + 1} given, expected at most {WIDEST}"),
    "compiled": ({"features": (COMPILING,)}, "it does not serve tracing by torch.compile"),
    "new": ({"features": ("something new",)}, "it does not serve something new"),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_the_kernel_refuses(change, words, monkeypatch):
    monkeypatch.setattr("regard.kernels.triton.INSTALLED", True)
    assert TRITON.serves(ON_CUDA)
    assert TRITON.refusal(ON_CUDA._replace(**change)) == words
    monkeypatch.setattr("regard.kernels.triton.INSTALLED", False)
    assert TRITON.refusal(ON_CUDA) == "Triton is not installed"


def test_calls_are_described():
    found = describe(torch.zeros(2, 3, 5), torch.zeros(2, 3, 5, dtype=torch.bfloat16))
    assert found == Request("cpu", (torch.float32, torch.bfloat16), (), {"width": 5})


@pytest.mark.parametrize("normed", [True, False])
def test_where_the_kernel_does_not_serve_it_is_the_same(normed):
    norm = [torch.randn(24), torch.randn(24)] if normed else [None, None]
    inputs = [torch.randn(7, 24), torch.randn(7, 24), torch.randn(24)]
    found = residual(*inputs, 0.0, *norm)
    expected = reference.residual(*inputs, None, 1.0, *norm, 1e-5)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)
    dropped, _ = residual(torch.zeros(500, 9), torch.ones(500, 9), None, 0.5, None, None)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


@pytest.mark.unchecked
def test_wrong_arguments_are_named():
    with pytest.raises(ShapeError, match=r"y: \[2, 3\] given, expected x's \[4, 3\]"):
        residual(torch.zeros(4, 3), torch.zeros(2, 3), None, 0.0, None, None)
