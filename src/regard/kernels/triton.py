"""What all kernels in Triton share: whether it is there, and how one with a backward pass is called.

It comes with torch for CUDA, and Regard runs without it.
"""

import importlib.util
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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


def eager_function(
    compute: Callable[..., tuple[Tensor, ...]],
    keep: Callable[..., None],
    gradients: Callable[..., tuple[Tensor | None, ...]],
) -> type[torch.autograd.Function]:
    """Build an autograd function for eager calls, without the dispatcher's ceremony, which only a compiler needs.

    `compute(*inputs)` returns the result and what backward needs; `keep(ctx, inputs, output)` saves that for backward;
    `gradients(ctx, grad)` returns the gradients of all inputs. Only the first output has a gradient.
    """

    class Eager(torch.autograd.Function):
        """The forward and the backward pass as an autograd function."""

        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = compute(*inputs)
            keep(ctx, inputs, output)
            ctx.mark_non_differentiable(*output[1:])
            return output

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor, *unused: Any) -> Any:
            return gradients(ctx, grad)

    return Eager
