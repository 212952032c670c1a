"""Dispatch of matrix products: oneDNN with packed weights inside of `pack_weights()` on a CPU, torch's own product
elsewhere.
"""

# b rows · e width in · d width out
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.kernels.operations.linear import cpu
from regard.kernels.table import Condition, Request, Row, compiling

LARGE = 1 << 16  # numbers of W from which packing pays


CPU = Row(
    name="cpu",
    devices=("cpu",),
    dtypes=(torch.float32,),
    features=frozenset(),
    conditions=(
        Condition(
            lambda request: request.sizes["weight"] >= LARGE and request.sizes["input"] > 0,
            f"packing pays for weights of at least {LARGE} numbers and an input that is not empty",
        ),
    ),
)


class Linear(nn.Linear):
    """A drop-in for `torch.nn.Linear` that calls `linear`."""

    def forward(self, x: Float[Tensor, "*b e"]) -> Float[Tensor, "*b d"]:
        """Compute x Wᵀ + b."""
        return linear(x, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*b e"], weight: Float[Tensor, "d e"], bias: Float[Tensor, " d"] | None = None
) -> Float[Tensor, "*b d"]:
    """Compute x Wᵀ + b."""
    if cpu.store.weights is not None and CPU.serves(describe(x, weight)):
        return cpu.linear(x, weight, bias)
    return F.linear(x, weight, bias)


def describe(x: Tensor, weight: Tensor) -> Request:
    """Put a call into plain data."""
    features = compiling()
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        features += ("a backward pass",)
    if torch.is_autocast_enabled(x.device.type):
        features += ("autocast",)
    return Request(x.device.type, (x.dtype, weight.dtype), features, {"input": x.numel(), "weight": weight.numel()})
