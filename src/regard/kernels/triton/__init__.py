"""Triton kernels, one file each, loaded on first use; this file checks for Triton and defines operators with gradients.

Triton comes with torch for CUDA; Regard runs without it.
"""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ATTENTION = "additive", "decode_step", "few_queries", "one_tile", "window"  # files with a function `attend`
INSTALLED = importlib.util.find_spec("triton") is not None  # a constant: torch.compile warns about a cached function


def __getattr__(name: str) -> Any:
    """Load a file with an `attend` on first use; torch.compile can trace this, but not `import_module`."""
    if name not in ATTENTION:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def operation(
    name: str,
    compute: Callable[..., tuple[Tensor, ...]],
    compute_backward: Callable[..., tuple[Tensor, ...]],
    shapes: tuple[Callable[..., Any], Callable[..., Any]],
    keep: Callable[..., None],
    gradients: Callable[..., tuple[Tensor | None, ...]],
) -> tuple[Any, Callable[..., tuple[Tensor, ...]]]:
    """Return `compute` with its gradients: an operator, and a function that uses the operator under torch.compile.

    Otherwise the function avoids the operator's overhead; its last input says whether there is a gradient. `shapes` are
    the fake implementations of both functions, which return empty tensors; `keep(ctx, inputs, output)` saves tensors
    for the backward pass; `gradients(ctx, grad, backward)` returns the gradients of all inputs. Only the first output
    of `compute` has a gradient.
    """
    forward, backward = (
        torch.library.custom_op(f"regard::{name}{suffix}", mutates_args=())(function)
        for suffix, function in (("", compute), ("_backward", compute_backward))
    )
    forward.register_fake(shapes[0])
    backward.register_fake(shapes[1])
    forward.register_autograd(lambda ctx, grad, *unused: gradients(ctx, grad, backward), setup_context=keep)

    class Eager(torch.autograd.Function):
        """The two passes without the dispatcher's overhead, which only a compiler needs."""

        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = compute(*inputs)
            keep(ctx, inputs, output)
            ctx.mark_non_differentiable(*output[1:])
            return output

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor, *unused: Any) -> Any:
            return gradients(ctx, grad, compute_backward)

    def serve(*inputs: Any) -> tuple[Tensor, ...]:
        call = forward if torch.compiler.is_compiling() else Eager.apply if inputs[-1] else compute
        made: tuple[Tensor, ...] = call(*inputs)
        return made

    return forward, serve
