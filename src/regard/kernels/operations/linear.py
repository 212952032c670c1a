"""Matrix products: oneDNN with packed weights inside `pack_weights()` on a CPU, torch's own product elsewhere.

A search multiplies by the same W at every step. On a CPU `F.linear` writes the bias into the result, adds the product,
and rearranges W in every call. oneDNN stores W in its kernels' layout, and adds the bias within the product.
"""

# b rows · e width in · d width out
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LARGE, WORK = 1 << 16, 1 << 18  # elements of W, and multiplications per call, from which packing is worth its cost
FEW, ONCE = 16, 1 << 19  # below FEW rows, as in a sentence's few steps, pack only weights of at least ONCE elements


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
    if key not in weights:  # keep the weight beside its packing, so that no other tensor gets its address
        weights[key] = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None), weight
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weights[key][0], bias, "none", [], "")
    return result


def is_packed(x: Tensor, weight: Tensor) -> bool:
    """Return whether packed weights support this product: float32 on a CPU, without a gradient or autocast."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not x.dtype == weight.dtype == torch.float32:
        return False
    backward = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    return not backward and not torch.is_autocast_enabled("cpu")


# ---- packed weights


class Store(threading.local):
    """Packed weights by the weight's address, with the weight itself; None outside `pack_weights`.

    Thread-local, like the choice of a backend: one thread's search packs no weights for another.
    """

    weights: dict[tuple[int, torch.Size, tuple[int, ...]], tuple[Tensor, Tensor]] | None = None
    least: int = LARGE  # elements of the smallest weight to pack


store = Store()


@contextmanager
def pack_weights(rows: int = FEW) -> Iterator[None]:
    """Pack weights on first use inside the block, in this thread; they must not change meanwhile.

    `rows` is the total number of rows. With fewer than FEW, only the largest weights are packed; with one row, none.
    Nothing is packed if torch lacks oneDNN.
    """
    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    onednn = onednn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if store.weights is not None or rows == 1 or not onednn:  # packing is already on in an outer block
        yield
        return
    store.weights, store.least = {}, LARGE if rows >= FEW else ONCE
    try:
        yield
    finally:
        store.weights = None
