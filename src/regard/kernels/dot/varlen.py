"""Bilinear softmax attention over sequences laid end to end, through torch's varlen_attn (CUDA, half precision)."""

# t all tokens · a heads · d width
import math
from typing import Any

from torch import Tensor

from regard.kernels.reference import Call

__all__ = ["attend"]


def attend(call: Call) -> Tensor:
    """Query, keys and values [t d] or [a t d]; the padding never exists."""
    from torch.nn.attention.varlen import varlen_attn

    layout = call.reach.layout
    assert layout is not None
    # varlen_attn scales by 1/√d by itself; the rest of the wanted scale goes into the query.
    rest = call.scale / call.temperature * math.sqrt(call.query.shape[-1])
    query = call.query if rest == 1.0 else call.query * rest
    query, keys, values = (
        x.transpose(0, 1) if x.ndim == 3 else x.unsqueeze(1) for x in (query, call.keys, call.values)
    )
    context: Any = varlen_attn(
        query,
        keys,
        values,
        layout.offsets.int(),
        layout.key_offsets.int(),
        layout.longest,
        layout.longest_key,
        window_size=(-1, -1) if call.reach.causal is None else (-1, 0),
    )
    return context.transpose(0, 1) if call.query.ndim == 3 else context.squeeze(1)
