"""x Wᵀ + b with W laid out once for the processor, while a search asks for it at every step.

On a CPU `F.linear` writes the bias into the result, adds the product to it, and rearranges W anew in every call. oneDNN
keeps W in the layout that its kernels read, and adds the bias on the way. Outside of `packed()`, and wherever oneDNN
does not serve, it is `F.linear`.
"""

# b rows · e width in · d width out
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["Linear", "linear", "packed"]

LARGE = 1 << 16  # numbers of W from which packing pays

# Thread-local, as is the choice of a backend: one thread's search packs nothing for another.
store = threading.local()


@contextmanager
def packed() -> Iterator[None]:
    """Within the block, in this thread, weights are packed when first asked for; they must not change meanwhile."""
    if getattr(store, "weights", None) is not None:  # an outer block has begun already
        yield
        return
    store.weights = {}
    try:
        yield
    finally:
        store.weights = None


class Linear(nn.Linear):
    """torch's own, through `linear`."""

    def forward(self, x: Float[Tensor, "*b e"]) -> Float[Tensor, "*b d"]:
        """x Wᵀ + b."""
        return linear(x, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*b e"], weight: Float[Tensor, "d e"], bias: Float[Tensor, " d"] | None = None
) -> Float[Tensor, "*b d"]:
    """x Wᵀ + b."""
    weights = getattr(store, "weights", None)
    if weights is None or not served(x, weight):
        return F.linear(x, weight, bias)
    key = weight.data_ptr(), weight.shape, weight.stride()
    if key not in weights:  # the weight is kept beside its packing, so that nothing else gets its address
        weights[key] = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None), weight
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weights[key][0], bias, "none", [], "")
    return result


def served(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN has a packed product for this call."""
    return bool(
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and weight.numel() >= LARGE
        and x.numel() > 0
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
