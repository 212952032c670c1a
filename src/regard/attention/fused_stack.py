"""Stacks of blocks on a GPU in half precision: matrix products, with one kernel between two of them.

`Block.forward` is the specification. This module computes the same parts for sequences that lie end to end: a residual,
its dropout, the bias before it and the norm after it are one pass over memory, and attention reads queries, keys and
values where the projection wrote them. Activations between blocks are in half precision too.
"""

# t tokens of all sequences · u those of the memory · d width
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from regard.attention.attention import Attention
from regard.attention.block import ACTIVATIONS, Block, MixingBlock, Stack
from regard.attention.call_records import has_hooks
from regard.attention.heads import Heads
from regard.attention.score import Dot
from regard.attention.span import Causal, Monotonic, Span, split_packed
from regard.attention.weighting import Softmax
from regard.kernels import Linear, backends, mixed_precision, planning, residual

MAX_KEYS, WIDTHS = 128, (16, 32, 64, 128)  # most keys of a sequence; widths of a head
MEMORY = "a memory"
ROTARY = "rotary positions (model.positions)"
KNOWN_FEEDS = [[Linear, activation, Linear] for activation in ACTIVATIONS.values()]

Work = Callable[[Tensor], tuple[Tensor, Tensor]]


class Part(NamedTuple):
    """One part of a block: a function of its input, the bias that is added with the residual, and the norm.

    `work` returns its output, and its input for the residual.
    """

    work: Work
    bias: Tensor | None
    norm: Any  # a layer norm
    dropout: float


STACK = planning.Table(
    "stack",
    planning.Row(
        name="fused",
        devices=("cuda",),
        features=frozenset({backends.PACKED, backends.CAUSAL, backends.WINDOW, MEMORY}),
        most={"words": MAX_KEYS},
        conditions=(planning.NEEDS_TRITON,),
    ),
    planning.Row(name="block by block", features=None),
    steps={"words": (MAX_KEYS,)},
)


def serves(
    stack: Stack, x: Tensor, span: Span | None, memory: Tensor | None = None, across: Span | None = None
) -> bool:
    """Return whether the fused stack can run this call."""
    if x.ndim != 2 or not torch.is_autocast_enabled("cuda"):  # cheap checks before the blocks are examined
        return False
    return STACK.choose(describe(stack, x, span, memory, across)).name == "fused"


def describe(
    stack: Stack, x: Tensor, span: Span | None, memory: Tensor | None = None, across: Span | None = None
) -> planning.Request:
    """Describe a call of a stack as plain data."""
    if torch.compiler.is_compiling():  # do not trace the rest
        return planning.Request(x.device.type, (), planning.compiling(), {"words": 0})
    needs, longest = list[str](), 0
    if x.ndim != 2 or not (memory is None or memory.ndim == 2):
        needs.append("padded sequences")
    else:
        for each, windows in ((span, memory is None), *([] if memory is None else [(across, False)])):
            words, beside = describe_span(each, windows)
            longest, needs = max(longest, words), [*needs, *beside]
    if memory is not None:
        needs.append(MEMORY)
    device = x.device.type if memory is None or memory.device == x.device else "two devices"
    if x.is_cuda and not torch.is_autocast_enabled("cuda"):
        needs.append("training in single precision")
    if backends.forced_backend() is not None:
        needs.append(f"use_backend({backends.forced_backend()!r})")
    if has_hooks(stack):
        needs.append(planning.HOOKS)
    needs += (each for block in stack.blocks for each in block_features(block))
    return planning.Request(device, (), tuple(dict.fromkeys(needs)), {"words": longest})


def describe_span(span: Span | None, windows: bool = False) -> tuple[int, list[str]]:
    """Return the longest of the packed sequences, and what their span needs: nothing more, or causality from 0 on.

    With `windows`, a window around each word may replace causality.
    """
    packed, rest = split_packed(span)
    if packed is None:
        return 0, ["sequences that are neither padded nor packed"]
    needs = [backends.PACKED]
    for part in rest:
        kind = {Causal: backends.CAUSAL, Monotonic: backends.WINDOW}.get(type(part))
        from_zero = kind is not None and isinstance(part.start, int) and part.start == 0  # type: ignore[attr-defined]
        known = from_zero and (kind == backends.CAUSAL or (windows and len(rest) == 1))
        needs.append(kind if known and kind is not None else f"{type(part).__name__} beside packed sequences")
    return max(packed.longest, packed.longest_key), needs


def block_features(block: nn.Module) -> Iterator[str]:
    """Yield the properties of a block that the fused stack does not support; none if every part is a known one."""
    norms: tuple[nn.Module | None, ...]
    if type(block) is MixingBlock:
        norms = block.mixing_norm, block.feed_norm
    elif type(block) is Block:
        for heads in (block.attention, block.cross):
            if heads is not None:
                yield from heads_features(heads)
        norms = block.attention_norm, block.cross_norm, block.feed_norm
    else:
        yield f"a block of its own kind ({type(block).__name__})"
        return
    feed = block.feed
    if not block.has_residual:
        yield "no residuals (model.residual)"
    if type(feed) is not nn.Sequential or [type_before_parametrizations(part) for part in feed] not in KNOWN_FEEDS:
        yield "no feed-forward net, or one of its own kind (model.feed_forward)"
    if not all(norm is None or (type(norm) is nn.LayerNorm and norm.elementwise_affine) for norm in norms):
        yield "no layer norms (model.norm)"
    if not all(parameter.dtype == torch.float32 for parameter in block.parameters()):
        yield "parameters that are not float32"


def heads_features(heads: nn.Module, any_width: bool = False) -> Iterator[str]:
    """Yield the properties of heads beyond scaled dot products, a softmax and a single projection matrix."""
    if type(heads) is not Heads or not is_linear(heads.projection) or not is_linear(heads.output):
        yield "heads with projections of their own kind"
        return
    inner = heads.attention
    if heads.rotary is not None:
        yield ROTARY
    if not any_width and (heads.query_size != heads.value_size or heads.width not in WIDTHS):
        widths = ", ".join(map(str, WIDTHS[:-1]))
        yield f"heads of width {heads.width}, not {widths} or {WIDTHS[-1]} (model.size, model.heads, model.depth)"
    if type(inner) is not Attention or inner.span is not None or inner.query is not None:
        yield "attention with a span or a query of its own"
        return
    if type(inner.score) is not Dot or inner.score.fused_form != "bilinear":
        yield "scores that are no dot products (model.score)"
    if type(inner.weighting) is not Softmax or inner.weighting.fused_name != "softmax":
        yield "weights that are no softmax"


def is_linear(part: nn.Module | None) -> bool:
    """Return whether this is a Linear, possibly with a parametrised weight, such as an adapter's."""
    return part is not None and type_before_parametrizations(part) is Linear


def run(stack: Stack, x: Tensor, span: Span | None, memory: Tensor | None = None, across: Span | None = None) -> Tensor:
    """Run the stack on x [t d] and, if given, a memory [u d]."""
    from regard.kernels import dropout_triton

    half = torch.get_autocast_dtype("cuda")
    with torch.autocast("cuda", enabled=False):
        blocks: Any = list(stack.blocks)
        # Draw the seeds of all dropouts at once: at most three residuals, two attentions and a feed-forward net per
        # block.
        seeds = iter(dropout_triton.draw_seed(x.device, 6 * len(blocks)).split(1)) if stack.training else iter(())
        memories = [] if memory is None else [memory.to(half)]
        parts = [part for block in blocks for part in build_parts(block, span, memories, across, seeds)]
        norms = [part.norm for part in parts]
        pre = blocks[0].norm == "pre"
        if pre:  # a part's residual is fused with the norm before the next part
            norms = [*norms[1:], stack.final_norm]
            first = parts[0].norm
            y = F.layer_norm(x.float(), first.normalized_shape, first.weight, first.bias, first.eps).to(half)
        else:
            y = x.to(half)
        for part, norm in zip(parts, norms, strict=True):
            output, on = part.work(y)
            x = x if pre else on
            seed = next(seeds) if part.dropout else None
            x, normed = residual(
                x, output, part.bias, part.dropout, norm.weight, norm.bias, norm.eps, seed=seed, dtype=half
            )
            assert normed is not None
            y = normed
        return y


def build_parts(
    block: Any, span: Span | None, memory: list[Tensor], across: Span | None, seeds: Iterator[Tensor]
) -> Iterator[Part]:
    """Yield the parts of a block in order; all norms are layer norms. The memory is passed from block to block."""
    dropout = block.dropout if block.training else 0.0
    if isinstance(block, MixingBlock):
        yield Part(mixing_work(block.mixing, span), None, block.mixing_norm, dropout)
    else:
        itself, cross = block.attention, block.cross
        yield Part(self_attention_work(itself, span, seeds), itself.output.bias, block.attention_norm, dropout)
        if cross is not None:
            yield Part(cross_attention_work(cross, memory, across, seeds), cross.output.bias, block.cross_norm, dropout)
    yield Part(feed_forward_work(block.feed, seeds), block.feed[2].bias, block.feed_norm, dropout)


def mixing_work(mixing: nn.Module, span: Span | None) -> Work:
    """Return the function of the module that replaces attention; it enables autocast, which is off around it."""

    def work(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cuda", x.dtype):
            output: Tensor = mixing(x, span)
        return output.to(x.dtype), x

    return work


def self_attention_work(heads: Any, span: Span | None, seeds: Iterator[Tensor]) -> Work:
    """Return the function of self-attention, without its output bias."""
    from regard.kernels import self_attention

    packed, rest = split_packed(span)
    assert packed is not None
    projection, output = heads.projection, heads.output
    radii = [part.radius for part in rest if isinstance(part, Monotonic)]
    where: dict[str, Any] = {"radius": radii[0]} if radii else {"causal": len(rest) > 0}

    def work(x: Tensor) -> tuple[Tensor, Tensor]:
        qkv, x = mixed_precision.half_linear_with_input(x, projection.weight, projection.bias)
        how = softmax_options(heads, seeds)
        context = self_attention(qkv, packed.offsets, packed.longest, heads.heads, **where, **how)
        return mixed_precision.half_linear(context, output.weight), x

    return work


def cross_attention_work(heads: Any, memory: list[Tensor], across: Span | None, seeds: Iterator[Tensor]) -> Work:
    """Return the function of cross-attention, without its output bias."""
    from regard.kernels import cross_attention

    packed, _ = split_packed(across)
    assert packed is not None
    projection, output = heads.projection, heads.output

    def work(x: Tensor) -> tuple[Tensor, Tensor]:
        query, kv, x, memory[0] = mixed_precision.half_linear_pair(
            x, memory[0], projection.weight, projection.bias, heads.query_size
        )
        where = packed.offsets, packed.key_offsets, packed.longest, packed.longest_key
        context = cross_attention(query, kv, *where, heads.heads, **softmax_options(heads, seeds))
        return mixed_precision.half_linear(context, output.weight), x

    return work


def softmax_options(heads: Any, seeds: Iterator[Tensor]) -> dict[str, Any]:
    """Return the scale, dropout and seed of the softmax."""
    inner = heads.attention
    dropout = inner.dropout if inner.training else 0.0
    scale = inner.score.scale(heads.width) / inner.weighting.temperature
    return {"scale": scale, "dropout": dropout, "seed": next(seeds) if dropout else None}


def feed_forward_work(feed: Any, seeds: Iterator[Tensor]) -> Work:
    """Return the function of the feed-forward net, without its output bias."""
    from regard.kernels import dropout_triton

    inner, between, outer = feed
    name: Any = next(name for name, activation in ACTIVATIONS.items() if type(between) is activation)
    dropout: float = between.dropout if between.training else 0.0

    def work(x: Tensor) -> tuple[Tensor, Tensor]:
        hidden, x = mixed_precision.half_linear_with_input(x, inner.weight)
        seed = next(seeds) if dropout else None
        hidden = dropout_triton.activation_dropout(hidden, inner.bias, dropout, seed, name)
        return mixed_precision.half_linear(hidden, outer.weight), x

    return work
