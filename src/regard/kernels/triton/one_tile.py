r"""Softmax attention of short sequences in Triton: all keys in one tile, the usual case in translation.

Up to 128 keys, the scores of a sequence and a head fit in registers: no online softmax; only the inputs are saved for
the backward pass, which recomputes the weights; and one program computes dq, dk and dv together, without atomics.

Sequences lie end to end, [t a d] with offsets, or padded, [s n a d] with the number of keys per row. Strides are
arbitrary, except that of d, which is 1. Packed sequences of different lengths each use the smallest tile that they fit,
16 … 128. With dropout, a weight's random number depends on a seed and its position, so that the backward pass can draw
it again (Philox, `tl.rand4x`).

A launch processes the sequences longer than LOW and no longer than TILE; those up to SMALL use a smaller tile. A
program goes through GROUP sequences: if few of them belong to its launch, most programs would otherwise do nothing.
"""

# t all tokens · s sequences · n queries · m keys · a heads · d width
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from regard.kernels.operations.dot import expand_batch, to_four_dimensions
from regard.kernels.reference import Call

LOG2E = math.log2(math.e)
FAR = 1 << 23  # largest stride between tokens for which offsets within a sequence fit 32 bits


class Tile(NamedTuple):
    """One launch: the tile for sequences up to `size`; those up to `small` use a smaller tile."""

    size: int
    block: int  # queries per iteration
    warps: int
    small: int = -1
    group: int = 1  # sequences per program


# By the longest sequence, as measured on an H200: for padded rows, and for packed sequences of different lengths, for
# which a second launch processes the longest ones, because they need more of a processor's resources.
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


# ---- functions to call


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
    """Compute softmax attention within packed sequences, no longer than `longest` and `longest_key`.

    If causal, query i sees keys up to i. A query whose sequence has no keys gets zeros. Dropout applies to the weights;
    a seed reproduces its draws, and is by default drawn from torch's generator.
    """
    how = Settings(max(longest, longest_key), scale, causal, dropout)
    return run(how, (query, keys, values), seed, offsets, key_offsets, None)


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
    """Attend within sequences: [t 3·a·d] -> [t a·d]; queries, keys and values are adjacent, and so are their gradients.

    With a radius, a query sees only the keys within this distance of its own position.
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
    """Attend to other sequences: [t a·d], [u 2·a·d] -> [t a·d]; keys and values, and their gradients, are adjacent."""
    how = Settings(max(longest, longest_key), scale, False, dropout, heads, (1, 2))
    return run(how, (query, kv), seed, offsets, key_offsets, None)


def attend(call: Call) -> Tensor:
    """Attend over packed sequences, [t d] or [a t d], or otherwise over [*b n d] with lengths."""
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
    batch = call.batch
    tensors = [to_four_dimensions(expand_batch(x, batch)) for x in tensors]
    lengths = limits.lengths
    if lengths is not None:
        if len(batch) > 1 and (batch[-1] == 1 or lengths.ndim < 1 or lengths.shape[-1] == 1):  # one for all heads
            lengths = lengths.expand(*batch[:-1], 1).flatten().contiguous()
        else:  # every head becomes a separate sequence
            lengths = lengths.expand(batch).flatten().contiguous()
            tensors = [x.reshape(-1, 1, *x.shape[-2:]) for x in tensors]
    query, keys, values = (x.transpose(1, 2) for x in tensors)
    settings = Settings(longest=max(query.shape[1], keys.shape[1]), **how)
    context = run(settings, (query, keys, values), None, None, None, lengths)
    return context.transpose(1, 2).reshape(*batch, *call.query.shape[-2:-1], call.values.shape[-1])


# ---- from torch to the kernels


class Settings(NamedTuple):
    """The scale, the dropout and the sizes of a call."""

    longest: int
    scale: float
    causal: bool
    dropout: float
    heads: int = 0
    parts: tuple[int, ...] = ()  # how many of query, keys and values each given tensor holds, if they are adjacent
    radius: int = -1  # of the window around a query's own position; negative: all keys


class OneTileAttention(torch.autograd.Function):
    """Attention from queries, keys and values, in separate or joint tensors; gradients have the same layout."""

    @staticmethod
    def forward(ctx: Any, how: Settings, *tensors: Tensor | None) -> Tensor:
        """Run the forward pass; `tensors` are offsets, key offsets, lengths and seed, then those with a gradient."""
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
    """Split the tensors into query, keys and values, each with a head axis."""
    if not how.parts:
        return list(projections)
    pairs = zip(projections, how.parts, strict=True)
    return [part for x, parts in pairs for part in x.unflatten(1, (parts, how.heads, -1)).unbind(1)]


def plan_launches(tiles: dict[int, list[Tile]], longest: int) -> list[tuple[Tile, int]]:
    """List the tiles for sequences up to the longest, each with the length that the tile before it covers."""
    plan = tiles[min(size for size in tiles if size >= longest)]
    return list(zip(plan, [-1, *(tile.size for tile in plan)], strict=False))


def queries_at_once(tile: Tile, queries: int | None) -> int:
    """Return the queries per iteration; padded rows with few `queries` need no more than these."""
    return tile.block if queries is None else min(tile.block, max(16, triton.next_power_of_2(queries)))


def warps_of(tile: Tile, width: int) -> int:
    """Return the number of warps: wide heads use twice as many in small tiles."""
    return tile.warps * (2 if width > 64 and tile.warps < 4 else 1)


def launch(
    kernel: Any, tiles: dict[int, list[Tile]], tensors: Sequence[Tensor], where: Sequence[Any], how: Settings
) -> None:
    """Run a kernel for all sequences, with one launch per tile, for the sequences longer than its `low`."""
    offsets, key_offsets, lengths, seed = where
    query, keys = tensors[:2]
    heads, width = query.shape[-2:]
    packed = offsets is not None
    sequences = len(offsets) - 1 if packed else len(query)
    if not sequences or not query.numel() + keys.numel():
        return
    steps = [step for x in tensors for step in ((0, *x.stride()[:2]) if packed else x.stride()[:3])]
    whole, whole_keys = (0, 0) if packed else (query.shape[1], keys.shape[1])
    for tile, low in plan_launches(tiles, how.longest):
        block = queries_at_once(tile, None if packed else whole)
        kernel[(triton.cdiv(sequences, tile.group) * heads,)](
            *tensors, seed, offsets, key_offsets, lengths, sequences, whole, whole_keys, heads, *steps,
            how.scale * LOG2E, how.dropout,
            PACKED=packed, LENGTHS=lengths is not None, CAUSAL=how.causal, RADIUS=how.radius,
            DROPOUT=how.dropout > 0,
            LOW=low, SMALL=tile.small, TILE=tile.size, BLOCK=block,
            BLOCKS=triton.cdiv(tile.size if packed else whole, block), GROUP=tile.group,
            WIDTH=width, D=max(16, triton.next_power_of_2(width)),
            num_warps=warps_of(tile, width), num_stages=1,
        )  # fmt: skip


def with_unit_stride(x: Tensor) -> Tensor:
    """Return x with contiguous heads, and a stride between tokens below FAR."""
    return x if x.stride(-1) == 1 and x.stride(max(0, x.ndim - 3)) < FAR else x.contiguous()


def run(how: Settings, projections: Sequence[Tensor], seed: Tensor | None, *where: Tensor | None) -> Tensor:
    """Compute the contexts; `where` holds the offsets of queries, those of keys, and lengths."""
    if how.dropout and seed is None:
        seed = torch.randint(1 << 62, (1,), device=projections[0].device)
    context: Tensor = OneTileAttention.apply(
        how, *where, seed if how.dropout else None, *map(with_unit_stride, projections)
    )
    return context


# ---- kernels


# Arguments that change from batch to batch must not cause a new compilation.
NUMBERS, LAYOUT = ["sequences", "whole", "whole_keys"], ["seed", "offsets", "key_offsets", "lengths"]


@triton.jit
@no_type_check
def rows_of(x, step, first, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr):
    """Return pointers to the rows of a head from `first` on, and which of them exist."""
    i, c = first + tl.arange(0, ROWS), tl.arange(0, D)
    there = i[:, None] < count
    if WIDTH != D:
        there = there & (c[None, :] < WIDTH)
    return x + i[:, None] * step + c[None, :], there


@triton.jit
@no_type_check
def load_rows(x, step, first, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr):
    """Load rows, with zeros for rows that do not exist."""
    pointers, there = rows_of(x, step, first, count, ROWS, WIDTH, D)
    return tl.load(pointers, mask=there, other=0.0)


@triton.jit
@no_type_check
def store_rows(x, rows, step, first, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr):
    """Store some rows."""
    pointers, there = rows_of(x, step, first, count, ROWS, WIDTH, D)
    tl.store(pointers, rows.to(x.dtype.element_ty), mask=there)


@triton.jit
@no_type_check
def weigh(
    q, k, first, length, scale, CAUSAL: tl.constexpr, RADIUS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr
):
    """Compute exp(e - max e) of every query and key, and the reciprocal of their sum; `scale` includes log2(e)."""
    i, j = first + tl.arange(0, BLOCK), tl.arange(0, TILE)
    reached = j[None, :] < length
    if CAUSAL:
        reached = reached & (j[None, :] <= i[:, None])
    if RADIUS >= 0:
        reached = reached & (tl.abs(j[None, :] - i[:, None]) <= RADIUS)
    scores = tl.where(reached, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    top = tl.max(scores, 1)
    top = tl.where(top == float("-inf"), 0.0, top)  # a query that sees no key gets zeros, not NaN
    p = tl.exp2(scores - top[:, None])
    total = tl.sum(p, 1)
    return p, 1.0 / tl.where(total == 0.0, 1.0, total)


@triton.jit
@no_type_check
def draw_mask(seed, row, head, heads, dropout, ROWS: tl.constexpr, TILE: tl.constexpr):
    """Draw which weights to keep, as True: one Philox draw per four keys, by query, head and position."""
    row, four = row + tl.arange(0, ROWS), tl.arange(0, TILE // 4)
    a, b, c, d = tl.rand4x(tl.load(seed), (row[:, None] * heads + head) * 32 + four[None, :], 7)
    some = tl.join((a >= dropout).to(tl.int8), (b >= dropout).to(tl.int8))
    more = tl.join((c >= dropout).to(tl.int8), (d >= dropout).to(tl.int8))
    return tl.join(some, more).reshape(ROWS, TILE) > 0


@triton.jit
@no_type_check
def span_of(offsets, sequence, whole, PACKED: tl.constexpr):
    """Return a sequence's start and length."""
    if PACKED:
        start = tl.load(offsets + sequence).to(tl.int64)
        return start, (tl.load(offsets + sequence + 1) - start).to(tl.int32)
    else:
        return tl.zeros((), tl.int64), whole


@triton.jit
@no_type_check
def forward_tile(
    q, k, v, o, seed, n, m, length, row, head, heads, q_t, k_t, v_t, o_t, scale, dropout,
    CAUSAL: tl.constexpr, RADIUS: tl.constexpr, DROPOUT: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute the contexts of one sequence in one head."""
    keys = load_rows(k, k_t, 0, m, TILE, WIDTH, D)
    values = load_rows(v, v_t, 0, m, TILE, WIDTH, D)
    for block in range(BLOCKS):
        first = block * BLOCK
        query = load_rows(q, q_t, first, n, BLOCK, WIDTH, D)
        p, share = weigh(query, keys, first, length, scale, CAUSAL, RADIUS, BLOCK, TILE)
        if DROPOUT:
            p = tl.where(draw_mask(seed, row + first, head, heads, dropout, BLOCK, TILE), p, 0.0)
            share = share / tl.maximum(1.0 - dropout, 1e-6)
        context = tl.dot(p.to(values.dtype), values) * share[:, None]
        store_rows(o, context, o_t, first, n, BLOCK, WIDTH, D)


@triton.jit
@no_type_check
def backward_tile(
    q, k, v, do, dq, dk, dv, seed, n, m, length, row, head, heads, q_t, k_t, v_t, do_t, dq_t, dk_t, dv_t, scale,
    dropout, CAUSAL: tl.constexpr, RADIUS: tl.constexpr, DROPOUT: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute all gradients of one sequence in one head.

    Rows beyond the sequence's queries have no gradient (do = 0), so that they add nothing to dk and dv.
    """
    keys = load_rows(k, k_t, 0, m, TILE, WIDTH, D)
    values = load_rows(v, v_t, 0, m, TILE, WIDTH, D)
    natural = scale * 0.6931471805599453
    dkeys, dvalues = tl.zeros((TILE, D), tl.float32), tl.zeros((TILE, D), tl.float32)
    for block in range(BLOCKS):
        first = block * BLOCK
        query = load_rows(q, q_t, first, n, BLOCK, WIDTH, D)
        grad = load_rows(do, do_t, first, n, BLOCK, WIDTH, D)
        p, share = weigh(query, keys, first, length, scale, CAUSAL, RADIUS, BLOCK, TILE)
        p = p * share[:, None]
        dp = tl.dot(grad, tl.trans(values))
        if DROPOUT:
            draw = draw_mask(seed, row + first, head, heads, dropout, BLOCK, TILE)
            draw = tl.where(draw, 1.0 / tl.maximum(1.0 - dropout, 1e-6), 0.0)
            dp = dp * draw
            dvalues = tl.dot(tl.trans((p * draw).to(grad.dtype)), grad, dvalues)
        else:
            dvalues = tl.dot(tl.trans(p.to(grad.dtype)), grad, dvalues)
        # δ_i = Σ_j p_ij dp_ij: this tile has all keys, so that the context is not needed.
        ds = (p * (dp - tl.sum(p * dp, 1)[:, None])).to(query.dtype)
        store_rows(dq, tl.dot(ds, keys) * natural, dq_t, first, n, BLOCK, WIDTH, D)
        dkeys = tl.dot(tl.trans(ds), query, dkeys)
    store_rows(dk, dkeys * natural, dk_t, 0, m, TILE, WIDTH, D)
    store_rows(dv, dvalues, dv_t, 0, m, TILE, WIDTH, D)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=LAYOUT)
@no_type_check
def forward_kernel(
    q, k, v, o, seed, offsets, key_offsets, lengths, sequences, whole, whole_keys, heads,
    q_s, q_t, q_a, k_s, k_t, k_a, v_s, v_t, v_a, o_s, o_t, o_a, scale, dropout,
    PACKED: tl.constexpr, LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, RADIUS: tl.constexpr, DROPOUT: tl.constexpr,
    LOW: tl.constexpr, SMALL: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute one head's contexts, for those of GROUP sequences that belong to this launch."""
    head = (tl.program_id(0) % heads).to(tl.int64)
    # Disable loop-invariant code motion: hoisted values would take twice the registers.
    for g in tl.range(GROUP, disable_licm=True):
        number = (tl.program_id(0) // heads) * GROUP + g
        sequence = tl.minimum(number, sequences - 1).to(tl.int64)
        start, n = span_of(offsets, sequence, whole, PACKED)
        key_start, m = span_of(key_offsets, sequence, whole_keys, PACKED)
        size = tl.where(number < sequences, tl.maximum(n, m), LOW)
        length = m
        if LENGTHS:
            length = tl.minimum(m, tl.load(lengths + sequence)).to(tl.int32)
        row = sequence * whole + start
        q_h = q + sequence * q_s + start * q_t + head * q_a
        k_h = k + sequence * k_s + key_start * k_t + head * k_a
        v_h = v + sequence * v_s + key_start * v_t + head * v_a
        o_h = o + sequence * o_s + start * o_t + head * o_a
        if SMALL > 0:  # noqa: SIM102 (known when compiled)
            if (size > LOW) & (size <= SMALL):
                forward_tile(
                    q_h, k_h, v_h, o_h, seed, n, m, length, row, head, heads, q_t, k_t, v_t, o_t, scale, dropout,
                    CAUSAL, RADIUS, DROPOUT, SMALL, SMALL, 1, WIDTH, D,
                )  # fmt: skip
        if (size > LOW) & (size > SMALL) & (size <= TILE):
            forward_tile(
                q_h, k_h, v_h, o_h, seed, n, m, length, row, head, heads, q_t, k_t, v_t, o_t, scale, dropout,
                CAUSAL, RADIUS, DROPOUT, TILE, BLOCK, BLOCKS, WIDTH, D,
            )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=LAYOUT)
@no_type_check
def backward_kernel(
    q, k, v, do, dq, dk, dv, seed, offsets, key_offsets, lengths, sequences, whole, whole_keys, heads,
    q_s, q_t, q_a, k_s, k_t, k_a, v_s, v_t, v_a, do_s, do_t, do_a,
    dq_s, dq_t, dq_a, dk_s, dk_t, dk_a, dv_s, dv_t, dv_a, scale, dropout,
    PACKED: tl.constexpr, LENGTHS: tl.constexpr, CAUSAL: tl.constexpr, RADIUS: tl.constexpr, DROPOUT: tl.constexpr,
    LOW: tl.constexpr, SMALL: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute one head's gradients, for those of GROUP sequences that belong to this launch."""
    head = (tl.program_id(0) % heads).to(tl.int64)
    for g in tl.range(GROUP, disable_licm=True):
        number = (tl.program_id(0) // heads) * GROUP + g
        sequence = tl.minimum(number, sequences - 1).to(tl.int64)
        start, n = span_of(offsets, sequence, whole, PACKED)
        key_start, m = span_of(key_offsets, sequence, whole_keys, PACKED)
        size = tl.where(number < sequences, tl.maximum(n, m), LOW)
        length = m
        if LENGTHS:
            length = tl.minimum(m, tl.load(lengths + sequence)).to(tl.int32)
        row = sequence * whole + start
        q_h = q + sequence * q_s + start * q_t + head * q_a
        k_h = k + sequence * k_s + key_start * k_t + head * k_a
        v_h = v + sequence * v_s + key_start * v_t + head * v_a
        do_h = do + sequence * do_s + start * do_t + head * do_a
        dq_h = dq + sequence * dq_s + start * dq_t + head * dq_a
        dk_h = dk + sequence * dk_s + key_start * dk_t + head * dk_a
        dv_h = dv + sequence * dv_s + key_start * dv_t + head * dv_a
        if SMALL > 0:  # noqa: SIM102 (known when compiled)
            if (size > LOW) & (size <= SMALL):
                backward_tile(
                    q_h, k_h, v_h, do_h, dq_h, dk_h, dv_h, seed, n, m, length, row, head, heads,
                    q_t, k_t, v_t, do_t, dq_t, dk_t, dv_t, scale, dropout,
                    CAUSAL, RADIUS, DROPOUT, SMALL, SMALL, 1, WIDTH, D,
                )  # fmt: skip
        if (size > LOW) & (size > SMALL) & (size <= TILE):
            backward_tile(
                q_h, k_h, v_h, do_h, dq_h, dk_h, dv_h, seed, n, m, length, row, head, heads,
                q_t, k_t, v_t, do_t, dq_t, dk_t, dv_t, scale, dropout,
                CAUSAL, RADIUS, DROPOUT, TILE, BLOCK, BLOCKS, WIDTH, D,
            )  # fmt: skip
