"""Rows of a table: what a row does not list it refuses, in words made of what is missing."""

import pytest
import torch

from regard.kernels import triton
from regard.kernels.table import COMPILING, HALF, NEEDS_TRITON, Condition, Request, Row, compiling, first, listing

EVEN = Condition(lambda request: request.sizes["width"] % 2 == 0, "it serves even widths")
FAST = Row(
    name="fast",
    devices=("cuda", "mps"),
    dtypes=HALF,
    features=frozenset({"dropout", "a mask"}),
    most={"width": 64},
    conditions=(EVEN,),
)
PLAIN = Row(name="plain", features=None)
REQUEST = Request("cuda", (torch.float16,), ("dropout",), {"width": 64})
REFUSED = {
    "device": ({"device": "cpu"}, "it runs on cuda and mps, not on cpu"),
    "dtype": ({"dtypes": (torch.float16, torch.float64)}, "it takes float16 and bfloat16, not float64"),
    "feature": ({"features": ("a mask", "a bias")}, "it does not serve a bias"),
    "features": ({"features": ("x", "dropout", "y", "z")}, "it does not serve x, y or z"),
    "size": ({"sizes": {"width": 66}}, "width: 66 given, expected at most 64"),
    "condition": ({"sizes": {"width": 7}}, "it serves even widths"),
    "all": (
        {"device": "cpu", "dtypes": (torch.float32,), "features": ("x",), "sizes": {"width": 65}},
        "it runs on cuda and mps, not on cpu; it takes float16 and bfloat16, not float32; it does not serve x; "
        "width: 65 given, expected at most 64; it serves even widths",
    ),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_listed_is_refused(change, words):
    request = REQUEST._replace(**change)
    assert FAST.refusal(request) == words
    assert not FAST.serves(request)
    assert first([FAST, PLAIN], request) is PLAIN


def test_what_is_listed_is_served():
    for features in ((), ("a mask",), ("dropout", "a mask")):
        request = REQUEST._replace(features=features)
        assert FAST.serves(request)
        assert FAST.refusal(request) is None
        assert first([FAST, PLAIN], request) is FAST


def test_the_plain_expression_serves_all():
    request = Request("xpu", (torch.float64,), ("whatever there may be",), {"width": 1 << 40})
    assert PLAIN.serves(request)
    assert PLAIN.refusal(request) is None


def test_triton_is_looked_for(monkeypatch):
    row = Row(name="kernel", features=frozenset(), conditions=(NEEDS_TRITON,))
    request = Request("cuda", (torch.float32,))
    monkeypatch.setattr(triton, "INSTALLED", False)
    assert row.refusal(request) == "Triton is not installed"
    monkeypatch.setattr(triton, "INSTALLED", True)
    assert row.serves(request)


def test_a_compiler_is_a_feature(monkeypatch):
    assert compiling() == ()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert compiling() == (COMPILING,)


def test_listing():
    assert [listing("a"), listing("ab"), listing("abc", "or")] == ["a", "a and b", "a, b or c"]
