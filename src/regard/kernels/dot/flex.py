"""Bilinear softmax attention through torch's FlexAttention: windows and ALiBi without a mask in memory."""

# b batch · n queries · m keys · d width
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from regard.kernels.dot.sdpa import four
from regard.kernels.reach import Reach
from regard.kernels.reference import Call

__all__ = ["attend"]


def attend(call: Call) -> Tensor:
    """Blocks of keys outside the reach are never computed; a query with nothing to look at gets zeros."""
    reach = call.reach
    batch = torch.broadcast_shapes(call.query.shape[:-2], call.keys.shape[:-2], call.values.shape[:-2])
    query, keys, values = (
        four(tensor.expand(*batch, *tensor.shape[-2:])).contiguous() for tensor in (call.query, call.keys, call.values)
    )
    lengths = None
    if reach.lengths is not None:
        # One length for all heads of a row, where the head axis was only put in: a smaller block mask.
        shared = len(batch) > 1 and reach.lengths.ndim == len(batch) and reach.lengths.shape[-1] == 1
        lengths = reach.lengths.expand(*batch[:-1], 1) if shared else reach.lengths.expand(batch)
        lengths = lengths.reshape(query.shape[0], -1)
    radius = None if reach.window is None else reach.window.radius
    first = 0 if reach.window is None else reach.window.start
    assert isinstance(first, int)
    assert not isinstance(reach.causal, Tensor)
    if lengths is None:
        blocks = fixed_blocks(reach.causal, radius, first, reach.queries, reach.keys, str(query.device))
    else:
        blocks = make_blocks(reach.causal, radius, first, lengths, reach.queries, reach.keys, str(query.device))
    context = (compiled() if query.is_cuda else flex_attention)(
        query, keys, values, score_mod=alibi(reach), block_mask=blocks, scale=call.scale / call.temperature
    )
    return context.reshape(*batch, *context.shape[-2:])


@cache
def compiled() -> Any:
    """Eager FlexAttention holds all scores; only the compiled one is fused."""
    return torch.compile(flex_attention, dynamic=False)


def alibi(reach: Reach) -> Callable[..., Tensor] | None:
    """ALiBi's bias as a function of the indices."""
    if reach.slopes is None:
        return None
    slopes, start = reach.slopes, reach.slopes_start

    def bias(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score - slopes[h] * (start + i - j).abs()

    return bias


@cache
def fixed_blocks(
    causal: int | None, radius: int | None, first: int, queries: int, keys: int, device: str
) -> BlockMask | None:
    """A block mask that hangs on sizes alone is built once."""
    if causal is None and radius is None:
        return None
    return make_blocks(causal, radius, first, None, queries, keys, device)


def make_blocks(
    causal: int | None,
    radius: int | None,
    first: int,
    lengths: Tensor | None,  # [rows heads] or [rows 1]
    queries: int,
    keys: int,
    device: str,
) -> BlockMask:
    """Which blocks of keys each block of queries needs."""

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        inside = j < keys
        if causal is not None:
            inside = inside & (j <= i + causal)
        if radius is not None:
            inside = inside & ((j - i - first).abs() <= radius)
        if lengths is not None:
            inside = inside & (j < lengths[b, h if lengths.shape[1] > 1 else h * 0])
        return inside

    rows, heads = (None, None) if lengths is None else lengths.shape
    return create_block_mask(allowed, rows, heads, queries, keys, device=device)
