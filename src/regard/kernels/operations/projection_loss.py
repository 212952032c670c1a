"""Dispatch of the loss: a kernel on CUDA, chunks elsewhere, the plain expression while torch.compile traces."""

# t tokens · d width · v classes
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.kernels.operations.projection_loss import chunked, reference
from regard.kernels.table import NEEDS_TRITON, SINGLE_OR_HALF, Request, Row, compiling, first

LOGITS = 1 << 22  # of a chunk, by default: 16 MiB in float32, which stays in a CPU's last cache
LOGITS_CUDA = 1 << 27

ROWS = (
    Row(name="triton", devices=("cuda",), dtypes=SINGLE_OR_HALF, features=frozenset(), conditions=(NEEDS_TRITON,)),
    Row(name="chunked", features=frozenset()),
    Row(name="reference", features=None),
)


def projection_loss(
    hidden: Float[Tensor, "t d"],
    weight: Float[Tensor, "v d"],
    bias: Float[Tensor, " v"] | None,
    targets: Int[Tensor, " t"],
    smoothing: float = 0.0,
    chunk: int | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Sum the label-smoothed cross-entropies of all tokens, and the plain ones, from which a perplexity is computed.

    The smoothing's mass is spread over all classes, as torch's. A token whose target is below zero counts nothing: a
    batch may be filled up to a fixed size. The second sum carries no gradient. `chunk` is how many tokens are projected
    at once. While torch.compile traces it is the plain expression, which a compiler fuses itself.
    """
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1]:
        raise ShapeError(f"hidden: {list(hidden.shape)} given, expected [t d] beside a weight {list(weight.shape)}")
    if targets.shape != hidden.shape[:1]:
        raise ShapeError(f"targets: {list(targets.shape)} given, expected one per token, [{len(hidden)}]")
    if not 0 <= smoothing < 1:
        raise ArgumentError(f"smoothing: {smoothing!r} given, expected a number from 0 up to, not including, 1")
    if chunk is not None and chunk < 1:
        raise ArgumentError(f"chunk: {chunk!r} given, expected at least 1 token")
    device, training = hidden.device.type, torch.is_grad_enabled()
    narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    row = first(ROWS, describe(hidden, narrow))
    if row.name == "reference":
        return reference.projection_loss(hidden, weight, bias, targets, smoothing)
    if row.name == "triton":
        from regard.kernels.operations.projection_loss import triton

        total, plain = triton.ProjectionLoss.apply(hidden, weight, bias, targets, smoothing, chunk, training, narrow)
        return total, plain
    if torch.is_autocast_enabled(device):
        hidden, weight = hidden.to(narrow), weight.to(narrow)
        bias = None if bias is None else bias.to(narrow)
    if chunk is None:
        chunk = max(1, (LOGITS_CUDA if hidden.is_cuda else LOGITS) // len(weight))
    total, plain = chunked.ProjectionLoss.apply(hidden, weight, bias, targets, smoothing, chunk, training)
    return total, plain


def describe(hidden: Tensor, dtype: torch.dtype) -> Request:
    """Put a call into plain data; `dtype` is that of the products."""
    return Request(hidden.device.type, (dtype,), compiling())
