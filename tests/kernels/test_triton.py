"""The one check for Triton."""

import importlib.util
import os

import pytest
import torch

from regard.kernels import triton


def test_whether_it_is_there(monkeypatch):
    assert triton.installed() == (importlib.util.find_spec("triton") is not None)
    assert triton.interpreted() == (os.environ.get("TRITON_INTERPRET") == "1")
    monkeypatch.setattr(triton, "INSTALLED", False)
    assert not triton.installed()


@pytest.mark.unchecked
def test_tensors_that_a_kernel_may_take(monkeypatch):
    class Somewhere:
        def __init__(self, cuda, dtype):
            self.is_cuda, self.dtype = cuda, dtype

    monkeypatch.setattr(triton, "INSTALLED", True)
    taken = [dtype for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64)
             if triton.available(Somewhere(True, dtype))]  # fmt: skip
    assert taken == [torch.float32, torch.float16, torch.bfloat16]
    assert not triton.available(Somewhere(False, torch.float32))
    monkeypatch.setattr(triton, "INSTALLED", False)
    assert not triton.available(Somewhere(True, torch.float32))
