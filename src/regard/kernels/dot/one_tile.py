r"""Softmax attention of short sequences in Triton: all keys in one tile, which is the usual case in translation.

Up to 128 keys, the scores of a sequence and a head fit in registers: no online softmax, nothing kept for the backward
pass but the inputs (weights are computed again), and one program that gives dq, dk and dv at once, without atomics.

Sequences lie end to end, [t a d] with offsets, or padded, [s n a d] with the number of keys per row; any strides but
that of d, which is 1. Among sequences of many lengths, each is given the smallest tile that it fits, 16 … 128. With
dropout, a weight's draw depends on a seed and its place, so that the backward pass draws it again (Philox,
`tl.rand4x`).
"""

# t all tokens · s sequences · n queries · m keys · a heads · d width
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import DtypeError, ShapeError
from regard.kernels.dot.one_tile_kernels import backward_kernel, forward_kernel
from regard.kernels.dot.sdpa import expand_batch, to_four_dimensions
from regard.kernels.reference import Call
from regard.kernels.span_limits import broadcast
from regard.kernels.triton import interpreted

LONGEST, WIDEST = 128, 128
LOG2E = math.log2(math.e)
FAR = 1 << 23  # a step between tokens up to which a place within a sequence is a number of 32 bits
DTYPES = (torch.bfloat16, torch.float16, *([torch.float32] if interpreted() else []))


class Tile(NamedTuple):
    """One launch: sequences up to `size`, those up to `small` in a smaller tile."""

    size: int
    block: int  # queries at a time
    warps: int
    small: int = -1
    group: int = 1  # sequences a program looks through
    registers: int | None = None


# By the longest sequence, as measured on an H200: for rows of one size, and for sequences of many, where there is a
# second launch for the long ones among them, which want more of a processor.
FORWARD = {16: [Tile(16, 16, 1)], 32: [Tile(32, 32, 1)], 64: [Tile(64, 64, 4)], 128: [Tile(128, 64, 4)]}
BACKWARD = {16: [Tile(16, 16, 1)], 32: [Tile(32, 32, 2)], 64: [Tile(64, 64, 4)], 128: [Tile(128, 128, 8)]}
FORWARD_PACKED = {
    32: [Tile(32, 32, 1, small=16)],
    64: [Tile(64, 64, 4, small=32)],
    128: [Tile(64, 64, 4, small=32), Tile(128, 64, 4, group=8)],
}
BACKWARD_PACKED = {
    32: [Tile(32, 32, 2, small=16)],
    64: [Tile(64, 64, 4, small=32)],
    128: [Tile(64, 64, 4, small=32), Tile(128, 128, 8, group=16)],
}


# ---- what is called


def attention(
    query: Float[Tensor, "t a d"],
    keys: Float[Tensor, "u a d"],
    values: Float[Tensor, "u a d"],
    offsets: Int[Tensor, " s1"],
    key_offsets: Int[Tensor, " s1"],
    longest: int,
    longest_key: int,
    *,
    scale: float,
    causal: bool = False,
    dropout: float = 0.0,
    seed: Int[Tensor, " 1"] | None = None,
) -> Float[Tensor, "t a d"]:
    """Softmax attention within each of the sequences laid end to end, which `longest` and `longest_key` bound.

    Causal: query i sees keys up to i. A query whose sequence has no keys gets zeros. Dropout falls on the weights; the
    same seed gives the same draw, and without one it is drawn from torch's generator.
    """
    how = Settings(max(longest, longest_key), scale, causal, dropout)
    return run(how, (query, keys, values), seed, offsets, key_offsets, None)


def padded_attention(
    query: Float[Tensor, "s n a d"],
    keys: Float[Tensor, "s m a d"],
    values: Float[Tensor, "s m a d"],
    lengths: Int[Tensor, " s"] | None = None,
    *,
    scale: float,
    causal: bool = False,
    dropout: float = 0.0,
    seed: Int[Tensor, " 1"] | None = None,
) -> Float[Tensor, "s n a d"]:
    """Attend over sequences of one size, of whose keys only the first `lengths` are visible."""
    how = Settings(max(query.shape[1], keys.shape[1]), scale, causal, dropout)
    return run(how, (query, keys, values), seed, None, None, lengths)


def self_attention(
    qkv: Float[Tensor, "t w"],
    offsets: Int[Tensor, " s1"],
    longest: int,
    heads: int,
    *,
    scale: float,
    causal: bool = False,
    radius: int | None = None,
    dropout: float = 0.0,
    seed: Int[Tensor, " 1"] | None = None,
) -> Float[Tensor, "t v"]:
    """Attend within sequences: [t 3·a·d] -> [t a·d]; queries, keys and values lie side by side, as do their gradients.

    With a radius, a query sees the keys within it on either side of its own place.
    """
    how = Settings(longest, scale, causal, dropout, heads, (3,), -1 if radius is None else radius)
    return run(how, (qkv,), seed, offsets, offsets, None)


def cross_attention(
    query: Float[Tensor, "t e"],
    kv: Float[Tensor, "u w"],
    offsets: Int[Tensor, " s1"],
    key_offsets: Int[Tensor, " s1"],
    longest: int,
    longest_key: int,
    heads: int,
    *,
    scale: float,
    dropout: float = 0.0,
    seed: Int[Tensor, " 1"] | None = None,
) -> Float[Tensor, "t e"]:
    """Attend to other sequences: [t a·d], [u 2·a·d] -> [t a·d]; keys and values side by side, as their gradients."""
    how = Settings(max(longest, longest_key), scale, False, dropout, heads, (1, 2))
    return run(how, (query, kv), seed, offsets, key_offsets, None)


def attend(call: Call) -> Tensor:
    """Attend over [t d] or [a t d] where sequences lie end to end, otherwise over [*b n d] under Lengths."""
    limits = call.limits
    how: dict[str, Any] = {
        "scale": call.scale / call.temperature,
        "causal": limits.causal is not None,
        "dropout": call.dropout,
    }
    tensors: Any = (call.query, call.keys, call.values)
    if limits.layout is not None:
        tensors = [x.transpose(0, 1) if x.ndim == 3 else x.unsqueeze(1) for x in tensors]
        where = limits.layout
        sizes = where.longest, where.longest_key
        context = attention(tensors[0], tensors[1], tensors[2], where.offsets, where.key_offsets, *sizes, **how)
        return context.transpose(0, 1) if call.query.ndim == 3 else context.squeeze(1)
    batch = broadcast(*(x.shape[:-2] for x in tensors))
    tensors = [to_four_dimensions(expand_batch(x, batch)) for x in tensors]
    lengths = limits.lengths
    if lengths is not None:
        if len(batch) > 1 and (batch[-1] == 1 or lengths.ndim < 1 or lengths.shape[-1] == 1):  # one for all heads
            lengths = lengths.expand(*batch[:-1], 1).flatten().contiguous()
        else:  # every head is a sequence of its own
            lengths = lengths.expand(batch).flatten().contiguous()
            tensors = [x.reshape(-1, 1, *x.shape[-2:]) for x in tensors]
    query, keys, values = (x.transpose(1, 2) for x in tensors)
    context = padded_attention(query, keys, values, lengths, **how)
    return context.transpose(1, 2).reshape(*batch, *call.query.shape[-2:-1], call.values.shape[-1])


# ---- from torch to the kernels


class Settings(NamedTuple):
    """The scale, the dropout and the sizes of a call."""

    longest: int
    scale: float
    causal: bool
    dropout: float
    heads: int = 0
    parts: tuple[int, ...] = ()  # how many of query, keys and values each given tensor holds, where they are joined
    radius: int = -1  # of the window around a query's own place; negative: all keys


class OneTileAttention(torch.autograd.Function):
    """Attention from queries, keys and values, one tensor each or side by side; gradients lie as these do."""

    @staticmethod
    def forward(ctx: Any, how: Settings, *tensors: Tensor | None) -> Tensor:
        """Run the forward pass; `tensors` are offsets, those of keys, lengths and seed, then all with a gradient."""
        where, projections = tensors[:4], cast(tuple[Tensor, ...], tensors[4:])
        query, keys, values = split_projections(projections, how)
        context = query.new_empty(query.shape)
        tiles = FORWARD if where[0] is None else FORWARD_PACKED
        launch(forward_kernel, tiles, (query, keys, values, context), where, how)
        ctx.save_for_backward(*tensors)
        ctx.how = how
        return context.flatten(1) if how.parts else context

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        where, projections, how = ctx.saved_tensors[:4], ctx.saved_tensors[4:], ctx.how
        grads = [torch.empty_like(x) for x in projections]
        grad = with_unit_stride(grad)
        grad = grad.unflatten(1, (how.heads, -1)) if how.parts else grad
        tiles = BACKWARD if where[0] is None else BACKWARD_PACKED
        launch(
            backward_kernel,
            tiles,
            (*split_projections(projections, how), grad, *split_projections(grads, how)),
            where,
            how,
        )
        return *(None,) * 5, *grads


def split_projections(projections: Sequence[Tensor], how: Settings) -> list[Tensor]:
    """Split the tensors into query, keys and values, each with an axis of heads."""
    if not how.parts:
        return list(projections)
    pairs = zip(projections, how.parts, strict=True)
    return [part for x, parts in pairs for part in x.unflatten(1, (parts, how.heads, -1)).unbind(1)]


def launch(
    kernel: Any, tiles: dict[int, list[Tile]], tensors: Sequence[Tensor], where: Sequence[Any], how: Settings
) -> None:
    """Run a kernel for all sequences."""
    for tile, low in plan_launches(tiles, how.longest):
        launch_one(kernel, tile, tensors, where, how, low)


def plan_launches(tiles: dict[int, list[Tile]], longest: int) -> list[tuple[Tile, int]]:
    """List the tiles that serve sequences up to the longest, each with the length that the tiles before it serve."""
    plan = tiles[min(size for size in tiles if size >= longest)]
    return list(zip(plan, [-1, *(tile.size for tile in plan)], strict=False))


def queries_at_once(tile: Tile, queries: int | None) -> int:
    """Choose how many queries a program takes at a time; padded rows of few `queries` need no more than these."""
    return tile.block if queries is None else min(tile.block, max(16, triton.next_power_of_2(queries)))


def warps_of(tile: Tile, width: int) -> int:
    """Choose the number of warps: wide heads take twice as many in small tiles."""
    return tile.warps * (2 if width > 64 and tile.warps < 4 else 1)


def launch_one(
    kernel: Any, tile: Tile, tensors: Sequence[Tensor], where: Sequence[Any], how: Settings, low: int
) -> None:
    """Run a kernel for the sequences of more than `low` tokens that fit the tile."""
    offsets, key_offsets, lengths, seed = where
    query, keys = tensors[:2]
    heads, width = query.shape[-2:]
    packed = offsets is not None
    sequences = len(offsets) - 1 if packed else len(query)
    if not sequences or not query.numel() + keys.numel():
        return
    steps = [step for x in tensors for step in ((0, *x.stride()[:2]) if packed else x.stride()[:3])]
    whole, whole_keys = (0, 0) if packed else (query.shape[1], keys.shape[1])
    block = queries_at_once(tile, None if packed else whole)
    kernel[(triton.cdiv(sequences, tile.group) * heads,)](
        *tensors, seed, offsets, key_offsets, lengths, sequences, whole, whole_keys, heads, *steps,
        how.scale * LOG2E, how.dropout,
        PACKED=packed, LENGTHS=lengths is not None, CAUSAL=how.causal, RADIUS=how.radius,
        DROPOUT=how.dropout > 0,
        LOW=low, SMALL=tile.small, TILE=tile.size, BLOCK=block,
        BLOCKS=triton.cdiv(tile.size if packed else whole, block), GROUP=tile.group,
        WIDTH=width, D=max(16, triton.next_power_of_2(width)),
        num_warps=warps_of(tile, width), num_stages=1, maxnreg=tile.registers,
    )  # fmt: skip


def with_unit_stride(x: Tensor) -> Tensor:
    """Return x with the numbers of a head side by side, and tokens not too far apart."""
    return x if x.stride(-1) == 1 and x.stride(max(0, x.ndim - 3)) < FAR else x.contiguous()


def check(query: Tensor, width: int, longest: int) -> None:
    """Refuse sizes that no tile fits."""
    if longest > LONGEST or width > WIDEST:
        raise ShapeError(f"sequences of {longest}, width {width} given, expected at most {LONGEST} and {WIDEST}")
    if query.dtype not in DTYPES:
        raise DtypeError(f"query: {query.dtype} given, expected float16 or bfloat16")


def run(how: Settings, projections: Sequence[Tensor], seed: Tensor | None, *where: Tensor | None) -> Tensor:
    """Compute the contexts; `where` holds the offsets of queries, those of keys, and lengths."""
    query = projections[0]
    width = query.shape[-1]
    if how.parts:
        for x, parts in zip(projections, how.parts, strict=True):
            if x.shape[1] != width // how.parts[0] * parts or x.shape[1] % (parts * how.heads):
                raise ShapeError(f"{list(x.shape)} given, expected a width of {parts} × {how.heads} heads")
        width //= how.parts[0] * how.heads
    check(query, width, how.longest)
    if how.dropout and seed is None:
        seed = torch.randint(1 << 62, (1,), device=query.device)
    context: Tensor = OneTileAttention.apply(
        how, *where, seed if how.dropout else None, *map(with_unit_stride, projections)
    )
    return context
