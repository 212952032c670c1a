"""Bilinear softmax attention through torch's FlexAttention: windows and ALiBi without a mask in memory."""

# b batch · n queries · m keys · d width
import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from regard.kernels.reference import Call
from regard.kernels.span_limits import SpanLimits, broadcast

VARIANTS = 128


def attend(call: Call) -> Tensor:
    """Attend without computing blocks of keys outside the limits; a query with nothing to look at gets zeros."""
    limits = call.limits
    batch = broadcast(call.query.shape[:-2], call.keys.shape[:-2], call.values.shape[:-2])
    # The last leading dimension is that of heads, whose slopes differ.
    rows, heads = (math.prod(batch[:-1]), batch[-1]) if batch else (1, 1)
    query, keys, values = (
        x.expand(*batch, *x.shape[-2:]).reshape(rows, heads, *x.shape[-2:]).contiguous()
        for x in (call.query, call.keys, call.values)
    )
    if not torch.is_grad_enabled():  # on a CPU it refuses whatever could have a gradient
        query, keys, values = query.detach(), keys.detach(), values.detach()
    lengths = None
    if limits.lengths is not None:
        # One length for all heads of a row, where the head axis was only put in: a smaller block mask.
        shared = len(batch) > 1 and limits.lengths.ndim == len(batch) and limits.lengths.shape[-1] == 1
        lengths = limits.lengths.expand(*batch[:-1], 1) if shared else limits.lengths.expand(batch)
        lengths = lengths.reshape(query.shape[0], -1)
    assert not isinstance(limits.causal, Tensor)
    window = None
    if limits.window is not None:
        assert isinstance(limits.window.start, int)
        window = (limits.window.start, limits.window.radius)
    sizes = (limits.queries, limits.keys, str(query.device))
    blocks = (
        fixed_blocks(limits.causal, window, *sizes)
        if lengths is None
        else make_blocks(limits.causal, window, lengths, *sizes)
    )
    options: dict[str, Any] = {
        "score_mod": alibi(limits, call.temperature),
        "block_mask": blocks,
        "scale": call.scale / call.temperature,
    }
    if query.is_cuda and not torch.compiler.is_compiling():
        # One compiled function for every span, dtype and mode: more variants than torch allows before it falls back,
        # with a warning that is shown once, to the eager form, which holds all scores.
        with torch._dynamo.config.patch(recompile_limit=VARIANTS):
            context = compile_flex()(query, keys, values, **options)
    else:
        context = flex_attention(query, keys, values, **options)
    return context.reshape(*batch, *context.shape[-2:])


@cache
def compile_flex() -> Any:
    """Compile FlexAttention, once: the eager one holds all scores, and only the compiled one is fused."""
    return torch.compile(flex_attention)


def alibi(limits: SpanLimits, temperature: float) -> Callable[..., Tensor] | None:
    """ALiBi's bias as a function of the indices, added to scale · q·k / T: divided by the temperature as scores are."""
    if not limits.slopes:
        return None
    ((slopes, given_start),) = limits.slopes
    start, slopes = number(given_start, limits.device), slopes / temperature

    def bias(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score - slopes[h] * (start + i - j).abs()

    return bias


@lru_cache(maxsize=256)
def fixed_blocks(
    causal: int | None, window: tuple[int, int] | None, queries: int, keys: int, device: str
) -> BlockMask | None:
    """Build a block mask that depends on sizes alone, once."""
    if causal is None and window is None:
        return None
    with torch.inference_mode(False):  # what is kept must serve training too
        return make_blocks(causal, window, None, queries, keys, device)


def make_blocks(
    causal: int | None,
    window: tuple[int, int] | None,  # start and radius
    lengths: Tensor | None,  # [rows heads] or [rows 1]
    queries: int,
    keys: int,
    device: str,
) -> BlockMask:
    """Build the mask of the blocks of keys that each block of queries needs."""
    # As tensors: a number in the closure would be compiled in, and every other one would be compiled anew.
    last = None if causal is None else number(causal, device)
    first, radius = (None, None) if window is None else (number(window[0], device), number(window[1], device))

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        inside = j >= 0
        if last is not None:
            inside = inside & (j <= i + last)
        if first is not None and radius is not None:
            inside = inside & ((j - i - first).abs() <= radius)
        if lengths is not None:
            inside = inside & (j < lengths[b, h if lengths.shape[1] > 1 else h * 0])
        return inside

    rows, heads = (None, None) if lengths is None else lengths.shape
    return create_block_mask(allowed, rows, heads, queries, keys, device=device)


def number(value: int | Tensor, device: torch.device | str) -> Tensor:
    """Make a tensor of a whole number."""
    return torch.as_tensor(value, device=device)
