"""x Wᵀ + b in half precision with weights kept in single precision, whose gradients come out in single precision.

Autocast casts every weight in each step by a launch of its own, and every gradient back. `HalfCopies` casts all of them
at once, when a step begins; the products here take the copies, and write gradients as the optimiser wants them.

What a product reads often goes on beside it, as a residual does. A product hands its input on, so that the backward
pass adds the other path's gradient while it multiplies, and not in a pass of its own.
"""

# t tokens · u tokens of a memory · e width in · d width out
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# Thread-local, as is the choice of a backend.
store = threading.local()


class HalfCopies:
    """Copies of weights in half precision, in memory that stays."""

    def __init__(self, weights: Sequence[nn.Parameter], dtype: torch.dtype):
        self.weights = [weight for weight in weights if weight.dtype == torch.float32 and weight.ndim <= 2]
        self.copies = [torch.empty_like(weight, dtype=dtype) for weight in self.weights]
        self.table = {id(weight): copy for weight, copy in zip(self.weights, self.copies, strict=True)}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let `to_half` give copies of the current weights inside the block, in this thread; they must not change."""
        with torch.no_grad():
            torch._foreach_copy_(self.copies, [weight.detach() for weight in self.weights])
        store.table = self.table
        try:
            yield
        finally:
            store.table = None


def to_half(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a weight in half precision, without a gradient: its copy, where there is one."""
    table = getattr(store, "table", None)
    copy = None if table is None else table.get(id(weight))
    return weight.detach().to(dtype) if copy is None or copy.dtype != dtype else copy


def half_linear(
    x: Float[Tensor, "t e"], weight: Float[Tensor, "d e"], bias: Float[Tensor, " d"] | None = None
) -> Float[Tensor, "t d"]:
    """Compute x Wᵀ + b in x's dtype."""
    return half_linear_with_input(x, weight, bias)[0]


def half_linear_with_input(
    x: Float[Tensor, "t e"], weight: Float[Tensor, "d e"], bias: Float[Tensor, " d"] | None = None
) -> tuple[Float[Tensor, "t d"], Float[Tensor, "t e"]]:
    """Compute x Wᵀ + b, and return x too, for others that read it."""
    result, on = Product.apply(x, weight, bias)
    return result, on


def half_linear_pair(
    x: Float[Tensor, "t e"], memory: Float[Tensor, "u e"], weight: Float[Tensor, "d e"], bias: Tensor | None, first: int
) -> tuple[Float[Tensor, "t p"], Float[Tensor, "u q"], Float[Tensor, "t e"], Float[Tensor, "u e"]]:
    """Multiply x with the first rows of a weight and a memory with the others; return both inputs too."""
    one, other, x, memory = Products.apply(x, memory, weight, bias, first)
    return one, other, x, memory


class Product(torch.autograd.Function):
    """A product x Wᵀ + b: one matrix product forward, two backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        narrow = to_half(weight, x.dtype)
        ctx.save_for_backward(x, narrow)
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        return forward(x, narrow, None if bias is None else to_half(bias, x.dtype)), x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, beside: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return beside, None, None
        x, narrow = ctx.saved_tensors
        dtype, bias_dtype = ctx.dtypes
        d_x = input_gradient(grad, narrow, beside) if ctx.needs_input_grad[0] else None
        d_weight = None
        if ctx.needs_input_grad[1]:  # it may be frozen
            d_weight = grad.new_empty(narrow.shape, dtype=dtype)
            weight_gradient(grad, x, d_weight)
        d_bias = sums(grad).to(bias_dtype) if bias_dtype is not None and ctx.needs_input_grad[2] else None
        return d_x, d_weight, d_bias


class Products(torch.autograd.Function):
    """Two products with rows of one weight, whose gradient is one tensor."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, memory: Tensor, weight: Tensor, bias: Tensor | None, first: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        narrow = to_half(weight, x.dtype)
        shift = None if bias is None else to_half(bias, x.dtype)
        ctx.save_for_backward(x, memory, narrow)
        ctx.dtypes, ctx.first = (weight.dtype, None if bias is None else bias.dtype), first
        return (
            forward(x, narrow[:first], None if shift is None else shift[:first]),
            forward(memory, narrow[first:], None if shift is None else shift[first:]),
            x,
            memory,
        )

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Tensor | None, other: Tensor | None, beside: Tensor | None, beside_memory: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, memory, narrow = ctx.saved_tensors
        (dtype, bias_dtype), first = ctx.dtypes, ctx.first
        grad = x.new_zeros(len(x), first) if grad is None else grad
        other = memory.new_zeros(len(memory), len(narrow) - first) if other is None else other
        d_x = input_gradient(grad, narrow[:first], beside) if ctx.needs_input_grad[0] else None
        d_memory = input_gradient(other, narrow[first:], beside_memory) if ctx.needs_input_grad[1] else None
        d_weight = d_bias = None
        if ctx.needs_input_grad[2]:  # it may be frozen
            d_weight = grad.new_empty(narrow.shape, dtype=dtype)
            weight_gradient(grad, x, d_weight[:first])
            weight_gradient(other, memory, d_weight[first:])
        if bias_dtype is not None and ctx.needs_input_grad[3]:
            d_bias = torch.cat([sums(grad), sums(other)]).to(bias_dtype)
        return d_x, d_memory, d_weight, d_bias, None


def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x Wᵀ + b."""
    return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def input_gradient(grad: Tensor, weight: Tensor, beside: Tensor | None) -> Tensor:
    """Add grad W to the gradient of another path, in place: nothing else reads that any more."""
    return torch.mm(grad, weight) if beside is None else beside.contiguous().addmm_(grad, weight)


def weight_gradient(grad: Tensor, x: Tensor, out: Tensor) -> None:
    """Compute gradᵀ x, summed and written in single precision."""
    if out.dtype == grad.dtype or not grad.is_cuda:
        out.copy_(torch.mm(grad.t().to(out.dtype), x.to(out.dtype)))
    else:
        torch.mm(grad.t(), x, out_dtype=out.dtype, out=out)


def sums(grad: Tensor) -> Tensor:
    """Return the sum of every column."""
    if grad.is_cuda:
        from regard.kernels.triton.sums import column_sums

        return column_sums(grad)
    return grad.sum(0, dtype=torch.promote_types(grad.dtype, torch.float32))
