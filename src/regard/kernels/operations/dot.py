"""Bilinear softmax attention with torch's kernels: fused products, packed sequences, plain products, FlexAttention.

Plain products, with a softmax between them, are for a few queries. On a CPU the fused kernel runs each row and head on
one thread, and a second thread does not help if queries are few, like the hypotheses of a beam. The scores of a few
queries are small, so that storing them costs nothing. FlexAttention serves windows and ALiBi on a GPU; it stores no
mask, and skips blocks of keys that no query sees.
"""

# b batch · n queries · m keys · t all tokens · a heads · d width
import inspect
import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from regard.kernels.reference import Call, bilinear_scores, matmul_wide
from regard.kernels.span_limits import SharedLimits, SpanLimits, broadcast

SHORT = 128  # up to this many keys, the memory-efficient kernel beats flash and cuDNN on Hopper
WIDE = 256  # largest width that flash and cuDNN support


def attend(call: Call) -> Tensor:
    """Compute the reference's sum, without holding [*b n m] if torch has a fused kernel for the case."""
    limits, query, keys, values = call.limits, call.query, call.keys, call.values
    batch: tuple[int, ...] = query.shape[:-2]
    if not batch == keys.shape[:-2] == values.shape[:-2]:
        batch = call.batch
    # On a CPU a bias may be wider than the query; a GPU's kernels need it in the query's dtype.
    dtype = query.dtype if query.is_cuda else torch.promote_types(query.dtype, torch.float32)
    mask: Tensor | None = None
    some: Tensor | None = None
    # Causality from query 0, without other limits, is a flag of the fused kernels.
    bounded = limits.lengths is not None or limits.window is not None
    bounded = bounded or len(limits.masks) > 0 or len(limits.biases) > 0 or len(limits.slopes) > 0
    causal = not bounded and isinstance(limits.causal, int) and limits.causal == 0
    if bounded or (limits.causal is not None and not causal):
        what = "sdpa", dtype, call.temperature, batch
        mask, some = limits.remember(what, lambda: four_dimensional_mask(limits, call.temperature, dtype, batch))
    options: dict[str, Any] = {
        "attn_mask": mask,
        "dropout_p": call.dropout,
        "is_causal": causal,
        "scale": call.scale / call.temperature,
    }
    if not (len(batch) == 2 and batch == query.shape[:-2] == keys.shape[:-2] == values.shape[:-2]):
        query, keys, values = (to_four_dimensions(expand_batch(tensor, batch)) for tensor in (query, keys, values))
    if query.is_cuda:
        with sdpa_kernel(kernel_order(call, masked=mask is not None), set_priority=True):
            context = F.scaled_dot_product_attention(query, keys, values, **options)
    else:
        context = F.scaled_dot_product_attention(query, keys, values, **options)
    if len(batch) != 2:
        context = context.reshape(*batch, *context.shape[-2:])
    return context if some is None else context.masked_fill(~some, 0.0)


def four_dimensional_mask(
    limits: SpanLimits, temperature: float, dtype: torch.dtype, batch: Sequence[int]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the mask in four dimensions for the fused kernels, and which queries see any key."""
    mask, some = merge_mask(limits, temperature, dtype)
    if mask is None:
        return None, some
    return to_four_dimensions(expand_batch(mask, broadcast(mask.shape[:-2], batch))), some


def merge_mask(limits: SpanLimits, temperature: float, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """Merge limits into a bias for scale · q·k / T or a boolean mask; also return which queries see any key.

    The temperature divides a span's bias as well as the scores. A query that sees no key is given all keys, and the
    caller sets its context to zero.
    """
    mask, some = limits.mask(), None
    bias = limits.bias() if len(limits.biases) + len(limits.slopes) > 0 else None
    if mask is not None and (len(limits.masks) > 0 or limits.maybe_empty):
        some = mask.any(-1, keepdim=True)
        mask = mask | ~some
    if bias is not None:
        bias = bias if temperature == 1.0 else bias / temperature
        if bias.dtype != dtype:
            wider = bias.is_floating_point() and torch.promote_types(bias.dtype, dtype) == dtype
            if not wider:
                # A softmax does not change if the largest bias among a query's visible keys is subtracted, and half
                # precision is accurate around zero: a bias of -40 would be rounded to a quarter, and so would the
                # weights of near keys. Values beyond its range stay finite: -1e9 does not mean forbidden.
                highest = bias.detach() if mask is None else bias.detach().masked_fill(~mask, float("-inf"))
                bounds = torch.finfo(dtype)
                bias = (bias - highest.amax(-1, keepdim=True).nan_to_num()).clamp(bounds.min, bounds.max)
            bias = bias.to(dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    return mask, some


def expand_batch(tensor: Tensor, batch: Sequence[int]) -> Tensor:
    """Expand a tensor to these leading dimensions."""
    return tensor if tensor.shape[:-2] == batch else tensor.expand(*batch, *tensor.shape[-2:])


def to_four_dimensions(tensor: Tensor) -> Tensor:
    """Reshape to the four dimensions of fused kernels: [batch heads n d]."""
    if tensor.ndim == 4:
        return tensor
    if tensor.ndim > 4:
        return tensor.flatten(0, tensor.ndim - 4)
    return tensor[(None,) * (3 - tensor.ndim)].unsqueeze(-3)


def kernel_order(call: Call, masked: bool) -> list[SDPBackend]:
    """List the kernels to try on CUDA, fastest first, as measured on Hopper."""
    fused = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    if masked or call.keys.shape[-2] <= SHORT or max(call.query.shape[-1], call.values.shape[-1]) > WIDE:
        fused = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
    return [*fused, SDPBackend.MATH]


def attend_few_queries(call: Call) -> Tensor:
    """Compute the reference's sum by two plain products."""
    limits, temperature = call.limits, call.temperature
    scores = bilinear_scores(call.query, call.keys, call.scale / temperature)
    if isinstance(limits, SharedLimits):  # others belong to one step, too short for two more calls
        what = "few queries", scores.dtype, temperature
        mask, some = limits.remember(what, lambda: merge_mask(limits, temperature, scores.dtype))
    else:
        mask, some = merge_mask(limits, temperature, scores.dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    context = matmul_wide(scores.softmax(-1), call.values).to(call.values.dtype)
    return context if some is None else context.masked_fill(~some, 0.0)


def attend_packed(call: Call) -> Tensor:
    """Attend over packed sequences, [t d] or [a t d], with torch's varlen_attn, in half precision on CUDA."""
    from torch.nn.attention.varlen import varlen_attn

    inputs, options = varlen_arguments(call, takes_scale())
    context: Any = varlen_attn(*inputs, **options)
    return context.transpose(0, 1) if call.query.ndim == 3 else context.squeeze(1)


def varlen_arguments(call: Call, scaled: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return varlen_attn's arguments (query, keys and values [t a d], offsets, longest lengths) and its options.

    `scaled`: whether this version's options include a scale.
    """
    layout = call.limits.layout
    assert layout is not None
    scale, query = call.scale / call.temperature, call.query
    options: dict[str, Any] = {"window_size": (-1, -1) if call.limits.causal is None else (-1, 0)}
    if scaled:  # applied in float32, after the product
        options["scale"] = scale
    elif (rest := scale * math.sqrt(query.shape[-1])) != 1.0:  # varlen_attn scales by 1/√d; apply the rest first
        query = query * rest
    tensors = [x.transpose(0, 1) if x.ndim == 3 else x.unsqueeze(1) for x in (query, call.keys, call.values)]
    where = layout.offsets.int(), layout.key_offsets.int(), layout.longest, layout.longest_key
    return (*tensors, *where), options


@cache
def takes_scale() -> bool:
    """Return whether this torch's varlen_attn has a `scale` option."""
    from torch.nn.attention.varlen import varlen_attn

    return "scale" in inspect.signature(varlen_attn).parameters


# ---- FlexAttention


VARIANTS = 128


def attend_flex(call: Call) -> Tensor:
    """Attend without computing blocks of keys outside the limits; a query that sees no key gets zeros."""
    limits = call.limits
    batch = call.batch
    # The last leading dimension is heads, which have different slopes.
    rows, heads = (math.prod(batch[:-1]), batch[-1]) if batch else (1, 1)
    query, keys, values = (
        x.expand(*batch, *x.shape[-2:]).reshape(rows, heads, *x.shape[-2:]).contiguous()
        for x in (call.query, call.keys, call.values)
    )
    if not torch.is_grad_enabled():  # on a CPU it refuses tensors that require gradients
        query, keys, values = query.detach(), keys.detach(), values.detach()
    lengths = None
    if limits.lengths is not None:
        # Use one length for all heads of a row if the head axis was only inserted: the block mask is smaller.
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
        # One compiled function serves all spans, dtypes and modes. These are more variants than torch allows before it
        # falls back, with a single warning, to the eager form, which stores all scores.
        with torch._dynamo.config.patch(recompile_limit=VARIANTS):
            context = compile_flex()(query, keys, values, **options)
    else:
        context = flex_attention(query, keys, values, **options)
    return context.reshape(*batch, *context.shape[-2:])


@cache
def compile_flex() -> Any:
    """Compile FlexAttention, once: only the compiled form is fused; the eager form stores all scores."""
    return torch.compile(flex_attention)


def alibi(limits: SpanLimits, temperature: float) -> Callable[..., Tensor] | None:
    """Return ALiBi's bias as a function of the indices, added to scale · q·k / T; the temperature divides it too."""
    if not limits.slopes:
        return None
    ((slopes, given_start),) = limits.slopes
    start, slopes = torch.as_tensor(given_start, device=limits.device), slopes / temperature

    def bias(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score - slopes[h] * (start + i - j).abs()

    return bias


@lru_cache(maxsize=256)
def fixed_blocks(
    causal: int | None, window: tuple[int, int] | None, queries: int, keys: int, device: str
) -> BlockMask | None:
    """Build a block mask that depends only on sizes, once."""
    if causal is None and window is None:
        return None
    with torch.inference_mode(False):  # a cached tensor must be usable in training too
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
    # As tensors: a number in the closure would be compiled in, and each new number would need a new compilation.
    last = None if causal is None else torch.as_tensor(causal, device=device)
    first, radius = (None, None) if window is None else [torch.as_tensor(x, device=device) for x in window]

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
