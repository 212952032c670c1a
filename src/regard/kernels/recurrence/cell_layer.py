"""A recurrent layer over whole sentences on a GPU, from both ends at once: a product and a kernel a step.

Products are in the dtype of what is given (under autocast bfloat16); cells, and a GRU's states, in float32. No length
is read on the host, and all shapes are known beforehand, so that a step of training can be captured as a CUDA graph.
"""

# b sentences · n positions · k directions · d width of a state · g gates
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable


def run(
    projected: Float[Tensor, "b n k g"],
    recurrent: Float[Tensor, "k g d"],
    bias: Float[Tensor, "k g"],
    lengths: Int[Tensor, " b"],
) -> Float[Tensor, "b n kd"]:
    """Compute the states after each position, [h→; h←], from zeros; three gates are a GRU's, four an LSTM's.

    `projected` is what the input gives to the gates; an LSTM's has the bias already, and of `bias` nothing is read. The
    second direction reads each row from its own end. What stands beyond a row's length changes nothing before it.
    """
    states: Tensor = Layer.apply(projected, recurrent, bias, lengths)
    return states


class Layer(torch.autograd.Function):
    """All steps of a recurrent layer, with their backward pass."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, recurrent: Tensor, bias: Tensor, lengths: Tensor) -> Tensor:
        from regard.kernels.recurrence import cells_triton as triton

        (b, n, k, g), d = projected.shape, recurrent.shape[-1]
        new, half = projected.new_empty, projected.dtype
        recurrent = recurrent.to(half)
        turned = recurrent.mT
        hidden = new(k, n + 1, b, d)
        states = new(k, n + 1, b, d, dtype=torch.float32)  # an LSTM's cells, or a GRU's states
        gates, summed, out = new(k, n, b, 4 * d), new(k, b, g), new(b, n, k, d)
        own_bias = bias if g == 3 * d else None
        hidden[:, 0], states[:, 0] = 0, 0
        for t in range(n):
            torch.bmm(hidden[:, t], turned, out=summed)
            cells = states[:, t], states[:, t + 1]
            triton.step(projected, summed, own_bias, *cells, gates[:, t], hidden[:, t + 1], t, out, lengths)
        ctx.save_for_backward(recurrent, lengths, hidden, states, gates)
        return out.flatten(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from regard.kernels.recurrence import cells_triton as triton

        recurrent, lengths, hidden, states, gates = ctx.saved_tensors
        (k, n, b, _), (_, g, d) = gates.shape, recurrent.shape
        d_output = (grad if grad.stride(-1) == 1 else grad.contiguous()).unflatten(2, (k, d))
        new = gates.new_empty
        d_projected, d_gates, carried = new(b, n, k, g), new(k, n, b, g), new(k, b, d)
        by = states.new_zeros(k, b, d)  # the gradient that passes from step to step beside the product
        for t in range(n - 1, -1, -1):
            later, into = None if t == n - 1 else carried, d_gates[:, t]
            cells = states[:, t], states[:, t + 1] if g == 4 * d else None
            triton.step_backward(gates[:, t], *cells, d_output, later, by, into, d_projected, t, lengths)
            if t:  # what comes before the first step is zero, and has no use for a gradient
                torch.bmm(d_gates[:, t], recurrent, out=carried)
        flat = d_gates.flatten(1, 2)
        d_recurrent = torch.bmm(flat.mT, hidden[:, :-1].flatten(1, 2))
        d_bias = flat.sum(1, dtype=torch.float32) if g == 3 * d else None
        return d_projected, d_recurrent, d_bias, None
