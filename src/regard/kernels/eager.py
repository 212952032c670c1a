"""A kernel with its backward pass for eager calls, without the dispatcher's ceremony, which only a compiler needs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def eager_function(
    compute: Callable[..., tuple[Tensor, ...]],
    keep: Callable[..., None],
    gradients: Callable[..., tuple[Tensor | None, ...]],
) -> type[torch.autograd.Function]:
    """Build an autograd function from `compute`, `keep` and `gradients`.

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
