"""x Wᵀ + b in half precision, with weights and gradients in single precision.

Autocast launches one cast per weight in each step, and one per gradient. `HalfCopies` casts all weights at once when a
step begins; these products use the copies, and write gradients in the optimiser's dtype.

A product's input is often a residual too. A product therefore also returns its input, so that its backward pass adds
the other path's gradient within the matrix product instead of in a separate pass.
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

# Thread-local, like the choice of a backend.
store = threading.local()


class HalfCopies:
    """Copies of weights in half precision, in buffers that are reused."""

    def __init__(self, weights: Sequence[nn.Parameter], dtype: torch.dtype):
        self.weights = [weight for weight in weights if weight.dtype == torch.float32 and weight.ndim <= 2]
        self.copies = [torch.empty_like(weight, dtype=dtype) for weight in self.weights]
        self.table = {id(weight): copy for weight, copy in zip(self.weights, self.copies, strict=True)}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let `to_half` return copies of the current weights inside the block, in this thread; they must not change."""
        with torch.no_grad():
            torch._foreach_copy_(self.copies, [weight.detach() for weight in self.weights])
        store.table = self.table
        try:
            yield
        finally:
            store.table = None


def to_half(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a weight in half precision, without a gradient: its copy if there is one."""
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
    """Compute x Wᵀ + b, and return x too, for other uses of it."""
    result, on = Products.apply(weight, bias, (len(weight),), x)
    return result, on


def half_linear_pair(
    x: Float[Tensor, "t e"], memory: Float[Tensor, "u e"], weight: Float[Tensor, "d e"], bias: Tensor | None, first: int
) -> tuple[Float[Tensor, "t p"], Float[Tensor, "u q"], Float[Tensor, "t e"], Float[Tensor, "u e"]]:
    """Multiply x by the first rows of a weight and a memory by the others; return both inputs too."""
    one, other, x, memory = Products.apply(weight, bias, (first, len(weight) - first), x, memory)
    return one, other, x, memory


class Products(torch.autograd.Function):
    """Products x Wᵀ + b of one input, or of several inputs with different rows of W; W's gradient is one tensor."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, rows: tuple[int, ...], *inputs: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        dtype = inputs[0].dtype
        narrow = to_half(weight, dtype)
        biases = [None] * len(rows) if bias is None else to_half(bias, dtype).split(rows)
        ctx.save_for_backward(narrow, *inputs)
        ctx.rows, ctx.dtypes = rows, (weight.dtype, None if bias is None else bias.dtype)
        products = (
            torch.mm(x, w.t()) if b is None else torch.addmm(b, x, w.t())
            for x, w, b in zip(inputs, narrow.split(rows), biases, strict=True)
        )
        return *products, *inputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        narrow, *inputs = ctx.saved_tensors
        (dtype, bias_dtype), rows, count = ctx.dtypes, ctx.rows, len(inputs)
        beside = given[count:]
        if all(grad is None for grad in given[:count]):
            return None, None, None, *beside
        grads = [x.new_zeros(len(x), n) if g is None else g for g, x, n in zip(given, inputs, rows, strict=False)]
        d_inputs: list[Tensor | None] = []
        for grad, w, other, needed in zip(grads, narrow.split(rows), beside, ctx.needs_input_grad[3:], strict=True):
            if not needed:
                d_inputs.append(None)
            elif other is None:
                d_inputs.append(torch.mm(grad, w))
            else:  # added in place to the other path's gradient, which is not used again
                d_inputs.append(other.contiguous().addmm_(grad, w))
        d_weight = d_bias = None
        if ctx.needs_input_grad[0]:  # the weight may be frozen
            d_weight = narrow.new_empty(narrow.shape, dtype=dtype)
            for grad, x, out in zip(grads, inputs, d_weight.split(rows), strict=True):
                if out.dtype == grad.dtype or not grad.is_cuda:
                    out.copy_(torch.mm(grad.t().to(out.dtype), x.to(out.dtype)))
                else:  # accumulated and written in single precision
                    torch.mm(grad.t(), x, out_dtype=out.dtype, out=out)
        if bias_dtype is not None and ctx.needs_input_grad[1]:
            each = [sums(grad) for grad in grads]
            d_bias = (torch.cat(each) if count > 1 else each[0]).to(bias_dtype)
        return d_weight, d_bias, None, *d_inputs


def sums(grad: Tensor) -> Tensor:
    """Sum each column in float32 or wider."""
    if grad.is_cuda:
        from regard.kernels.triton.arithmetic import column_sums

        return column_sums(grad)
    return grad.sum(0, dtype=torch.promote_types(grad.dtype, torch.float32))
