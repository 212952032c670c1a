"""Who computes the loss: a kernel on CUDA, chunks elsewhere, the plain expression for a compiler."""

import pytest
import torch

from regard.errors import ArgumentError, ShapeError
from regard.kernels.operations.projection_loss import ROWS, describe, projection_loss
from regard.kernels.table import COMPILING, Request, first

SERVED = [
    ("cuda", torch.bfloat16, (), "triton"),
    ("cuda", torch.float32, (), "triton"),
    ("cuda", torch.float64, (), "chunked"),
    ("cuda", torch.bfloat16, (COMPILING,), "reference"),
    ("cuda", torch.bfloat16, ("something new",), "reference"),
    ("cpu", torch.float32, (), "chunked"),
    ("mps", torch.float32, (), "chunked"),
    ("cpu", torch.float32, (COMPILING,), "reference"),
]


@pytest.mark.parametrize(("device", "dtype", "features", "name"), SERVED)
def test_who_serves(device, dtype, features, name, monkeypatch):
    monkeypatch.setattr("regard.kernels.triton.INSTALLED", True)
    request = Request(device, (dtype,), features)
    assert first(ROWS, request).name == name
    monkeypatch.setattr("regard.kernels.triton.INSTALLED", False)
    assert first(ROWS, request).name == ("chunked" if name == "triton" else name)


def test_calls_are_described(monkeypatch):
    hidden = torch.zeros(5, 3)
    assert describe(hidden, torch.bfloat16) == Request("cpu", (torch.bfloat16,))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert describe(hidden, torch.float32).features == (COMPILING,)


@pytest.mark.unchecked
def test_wrong_arguments_are_named():
    hidden, weight, bias, targets = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7), torch.randint(7, (5,))
    with pytest.raises(ShapeError, match=r"hidden: \[5, 2\] given, expected \[t d\] beside a weight \[7, 3\]"):
        projection_loss(hidden[:, :2], weight, bias, targets)
    with pytest.raises(ShapeError, match=r"targets: \[4\] given, expected one per token, \[5\]"):
        projection_loss(hidden, weight, bias, targets[:4])
    with pytest.raises(ArgumentError, match="smoothing: 1.0 given"):
        projection_loss(hidden, weight, bias, targets, 1.0)
    with pytest.raises(ArgumentError, match="chunk: 0 given"):
        projection_loss(hidden, weight, bias, targets, 0.1, 0)
