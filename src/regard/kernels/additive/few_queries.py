"""Additive softmax attention of a few queries a row on a GPU: the steps of a search, the steps of a recurrence.

One program a row walks its keys three times: scores, softmax, sum of the values. [r n m h] stands nowhere. Where rows
are too few to fill the GPU and keys are many, several programs share a row, and a second kernel joins what they found.
"""

# r rows · n queries · m keys · h hidden · dv value width · s splits of the keys
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.kernels.reference import Call
from regard.kernels.span_limits import broadcast
from regard.kernels.triton import interpreted

FEW = 16
ROWS, MANY = 264, 512  # fewer rows than two programs for each multiprocessor, and so many keys: split
LARGEST = 64  # splits
LANES = 256  # numbers of half precision that a warp reads at once, 16 bytes a thread


def attend(call: Call) -> Tensor:
    """Compute the reference's sum, without a gradient."""
    assert call.vector is not None
    batch = broadcast(call.query.shape[:-2], call.keys.shape[:-2], call.values.shape[:-2])

    def rows(x: Tensor) -> Tensor:
        return x if x.ndim == 3 and len(batch) == 1 and len(x) == batch[0] else spread(x, batch)

    lengths, vector = call.limits.lengths, call.vector
    if lengths is not None:
        lengths = lengths.expand(batch).reshape(-1).contiguous()  # a reshape alone may stay a broadcast
    if vector.ndim == 2:
        vector = vector.expand(*batch, -1).reshape(-1, vector.shape[-1])
    context, _ = look(rows(call.query), rows(call.keys), rows(call.values), vector, lengths, call.temperature)
    return context.view(*batch, *context.shape[1:])


class Tiles(NamedTuple):
    """The tiles into which a program cuts a row."""

    scored: int  # keys at once for their scores
    summed: int  # for the sum of their values
    columns: int  # of the values at once
    warps: int


def tiles(n: int, half: bool) -> Tiles:
    """Choose tiles, as measured on an H200."""
    if n > 1:
        return Tiles(8, 16, 256, 4)
    return Tiles(8, 16, 512, 2 if half else 4)


def split_keys(rows: int, keys: int) -> tuple[int, int]:
    """Choose how many programs share a row, and how many keys each has: several where rows do not fill the GPU."""
    splits = min(-(-ROWS // rows), -(-keys // 128), LARGEST) if rows < ROWS and keys >= MANY else 1
    chunk = -(-keys // splits)
    return -(-keys // chunk), chunk


def spread(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Merge all leading dimensions of [*b n d] into one."""
    return x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:])


def look(
    query: Float[Tensor, "r n h"],
    keys: Float[Tensor, "r m h"],
    values: Float[Tensor, "r m dv"],
    vector: Float[Tensor, "*r h"],
    lengths: Int[Tensor, " r"] | None = None,
    temperature: float = 1.0,
    *,
    context: Float[Tensor, "r n dv"] | None = None,
    weights: Float[Tensor, "r n m"] | None = None,
) -> tuple[Float[Tensor, "r n dv"], Float[Tensor, "r n m"]]:
    """Compute contexts, in the dtype of the values, and weights, in float32; at most 16 queries a row.

    Both are written into tensors that are given, where they are. Nothing is kept for a backward pass.
    """
    import triton

    from regard.kernels.additive import few_queries_kernels as kernels

    (r, n, h), m, dv = query.shape, keys.shape[1], values.shape[2]
    query, keys, values, vector = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, keys, values, vector))
    if context is None:
        context = values.new_empty(r, n, dv)
    if weights is None:
        weights = values.new_empty(r, n, m, dtype=torch.float32)
    if not r or not n:
        return context, weights
    if not m:
        return context.zero_(), weights
    splits, chunk = split_keys(r, m)
    parts, tops, totals = context[None], weights, weights  # the last two are not touched without splits
    if splits > 1:
        parts = values.new_empty(splits, r, n, dv, dtype=torch.float32)
        tops, totals = values.new_empty(2, splits, r, n, dtype=torch.float32).unbind(0)
    cut = tiles(n, values.dtype.itemsize == 2)
    wide, short = min(LANES, triton.next_power_of_2(h)), max(32, triton.next_power_of_2(chunk))
    kernels.look[(r, splits)](
        query, keys, values, vector, lengths if lengths is not None else query, weights, parts, tops, totals, n, m, h,
        dv, chunk, 1 / temperature, query.stride(0), query.stride(1), keys.stride(0), keys.stride(1), values.stride(0),
        values.stride(1), vector.stride(0) if vector.ndim == 2 else 0, weights.stride(0), weights.stride(1),
        parts.stride(0), parts.stride(1), parts.stride(2),
        LENGTHS=lengths is not None, SPLIT=splits > 1, BN=1 if n == 1 else 16, BK=cut.scored, BM=cut.summed, BH=wide,
        BLOCKS=1 if h <= wide else 2 if h <= 2 * wide else 0, BS=min(128, short), SHORT=short <= 128,
        BV=max(16, min(cut.columns, triton.next_power_of_2(dv))), INTERPRETED=interpreted(), num_warps=cut.warps,
    )  # fmt: skip
    if splits > 1:
        kernels.combine[(r, n)](
            parts, tops, totals, weights, context, n, m, dv, chunk, splits, parts.stride(0), parts.stride(1),
            parts.stride(2), weights.stride(0), weights.stride(1), context.stride(0), context.stride(1),
            BSPLIT=triton.next_power_of_2(splits), BS=256, BV=64, num_warps=4,
        )  # fmt: skip
    return context, weights
