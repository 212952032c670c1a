"""Matrix products: oneDNN with packed weights inside of `pack_weights()` on a CPU, torch's own product elsewhere.

A search asks for a product with the same W at every step. On a CPU `F.linear` writes the bias into the result, adds the
product to it, and rearranges W anew in every call. oneDNN keeps W in the layout that its kernels read, and adds the
bias on the way.
"""

# b rows · e width in · d width out
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LARGE, WORK = 1 << 16, 1 << 18  # numbers of W, and products of numbers in a call, from which packing pays
FEW, ONCE = 16, 1 << 19  # rows up to which, in the few steps of a sentence, only weights of so many numbers pay


class Linear(nn.Linear):
    """A drop-in for `torch.nn.Linear` that calls `linear`."""

    def forward(self, x: Float[Tensor, "*b e"]) -> Float[Tensor, "*b d"]:
        """Compute x Wᵀ + b."""
        weight = self.weight
        plainly = store.weights is None or weight.numel() < store.least
        return F.linear(x, weight, self.bias) if plainly else linear(x, weight, self.bias)


def linear(
    x: Float[Tensor, "*b e"], weight: Float[Tensor, "d e"], bias: Float[Tensor, " d"] | None = None
) -> Float[Tensor, "*b d"]:
    """Compute x Wᵀ + b."""
    weights = store.weights
    if weights is None or weight.numel() < store.least or x.numel() * len(weight) < WORK or not is_packed(x, weight):
        return F.linear(x, weight, bias)
    key = weight.data_ptr(), weight.shape, weight.stride()
    if key not in weights:  # the weight is kept beside its packing, so that nothing else gets its address
        weights[key] = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None), weight
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weights[key][0], bias, "none", [], "")
    return result


def is_packed(x: Tensor, weight: Tensor) -> bool:
    """Return whether packed weights serve a product: in single precision on a CPU, with no gradient and no autocast."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not x.dtype == weight.dtype == torch.float32:
        return False
    backward = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    return not backward and not torch.is_autocast_enabled("cpu")


# ---- packed weights


class Store(threading.local):
    """Packed weights by where the weight lies, beside the weight itself; None where nothing is to be packed.

    Thread-local, as is the choice of a backend: one thread's search packs nothing for another.
    """

    weights: dict[tuple[int, torch.Size, tuple[int, ...]], tuple[Tensor, Tensor]] | None = None
    least: int = LARGE  # numbers of a weight that is packed


store = Store()


@contextmanager
def pack_weights(rows: int = FEW) -> Iterator[None]:
    """Pack weights when they are first used inside the block, in this thread; they must not change meanwhile.

    For so many `rows` in all: of FEW rows the largest weights alone are worth it, of one row none. Where torch has no
    oneDNN, nothing is packed.
    """
    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    onednn = onednn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if store.weights is not None or rows == 1 or not onednn:  # an outer block has begun already
        yield
        return
    store.weights, store.least = {}, LARGE if rows >= FEW else ONCE
    try:
        yield
    finally:
        store.weights = None
