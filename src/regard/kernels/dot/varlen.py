"""Bilinear softmax attention over sequences laid end to end, through torch's varlen_attn (CUDA, half precision)."""

# t all tokens · a heads · d width
import inspect
import math
from functools import cache
from typing import Any

from torch import Tensor

from regard.kernels.reference import Call


def attend(call: Call) -> Tensor:
    """Attend over queries, keys and values [t d] or [a t d], which have no padding."""
    from torch.nn.attention.varlen import varlen_attn

    inputs, options = arguments(call, takes_scale())
    context: Any = varlen_attn(*inputs, **options)
    return context.transpose(0, 1) if call.query.ndim == 3 else context.squeeze(1)


def arguments(call: Call, scaled: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Build varlen_attn's arguments: query, keys and values [t a d], where sequences begin, the longest; and its
    options.

    `scaled`: whether these have a scale.
    """
    layout = call.limits.layout
    assert layout is not None
    scale, query = call.scale / call.temperature, call.query
    options: dict[str, Any] = {"window_size": (-1, -1) if call.limits.causal is None else (-1, 0)}
    if scaled:  # in float32, behind the product
        options["scale"] = scale
    elif (rest := scale * math.sqrt(query.shape[-1])) != 1.0:  # it scales by 1/√d by itself: the rest, beforehand
        query = query * rest
    tensors = [x.transpose(0, 1) if x.ndim == 3 else x.unsqueeze(1) for x in (query, call.keys, call.values)]
    where = layout.offsets.int(), layout.key_offsets.int(), layout.longest, layout.longest_key
    return (*tensors, *where), options


@cache
def takes_scale() -> bool:
    """Return whether this torch's varlen_attn can be told the scale."""
    from torch.nn.attention.varlen import varlen_attn

    return "scale" in inspect.signature(varlen_attn).parameters
