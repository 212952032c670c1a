"""Dispatch of dropout: a mask drawn here on a CPU, torch's own dropout elsewhere and while torch.compile traces.

A GPU's fused steps call `triton` themselves, with a seed that stays on the device.
"""

import torch.nn.functional as F
from torch import Tensor

from regard.kernels.operations.dropout import cpu
from regard.kernels.table import Request, Row, compiling

CPU = Row(name="cpu", devices=("cpu",), features=frozenset())


def dropout(x: Tensor, p: float) -> Tensor:
    """Set a share p of the numbers of x to zero, and divide the others by 1 - p."""
    if p == 0.0:
        return x
    if not CPU.serves(describe(x)):
        return F.dropout(x, p)
    dropped: Tensor = cpu.Dropout.apply(x, *cpu.draw(x.shape, p))
    return dropped


def dropout_add(x: Tensor, y: Tensor, p: float) -> Tensor:
    """Compute x + dropout(y), a residual, in one pass."""
    if p == 0.0:
        return x + y
    if not CPU.serves(describe(y)) or x.shape != y.shape or x.dtype != y.dtype:
        return x + dropout(y, p)
    together: Tensor = cpu.DropoutAdd.apply(x, y, *cpu.draw(y.shape, p))
    return together


def relu_dropout(x: Tensor, p: float) -> Tensor:
    """Compute dropout(relu(x)), keeping only its result for the backward pass."""
    if p == 0.0:
        return x.relu()
    if not CPU.serves(describe(x)):
        return F.dropout(x.relu(), p)
    dropped: Tensor = cpu.ReluDropout.apply(x, *cpu.draw(x.shape, p))
    return dropped


def gelu_dropout(x: Tensor, p: float) -> Tensor:
    """Compute dropout(gelu(x)), gelu in its exact form; its input and the mask are kept for the backward pass."""
    return dropout(F.gelu(x), p)


def silu_dropout(x: Tensor, p: float) -> Tensor:
    """Compute dropout(silu(x)); its input and the mask are kept for the backward pass."""
    return dropout(F.silu(x), p)


def describe(x: Tensor) -> Request:
    """Put a call into plain data."""
    return Request(x.device.type, (x.dtype,), compiling())
