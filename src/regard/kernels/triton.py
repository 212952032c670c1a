"""Availability of Triton: it comes with torch for CUDA, and Regard runs without it."""

import importlib.util
import os
from functools import cache

import torch
from torch import Tensor

INSTALLED = importlib.util.find_spec("triton") is not None  # a constant: torch.compile looks behind a cache, and warns


def installed() -> bool:
    """Return whether Triton can be imported."""
    return INSTALLED


@cache
def interpreted() -> bool:
    """Return whether kernels are interpreted on a CPU: slow, for tests; there is no inline assembly."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def available(x: Tensor) -> bool:
    """Return whether a kernel may take this tensor: on CUDA, in single or half precision."""
    return x.is_cuda and x.dtype in (torch.float32, torch.bfloat16, torch.float16) and installed()
