"""Local attention: each query reads the 2·radius + 1 keys of its window and few others.

A window that moves one key per query (local-m) is cut into tiles that neighbouring queries share. For many windows at
arbitrary places (local-p), queries are sorted into buckets. Few queries copy their keys; so does an additive score,
whose cost is the comparison rather than the copy.

Buckets: keys are cut into slices that start every SLICE keys and overlap by a window, so that every window lies inside
one slice. Queries are sorted by slice and processed GROUP at a time; a group and its slice are one small dense product.
For any centres, n queries need at most n/GROUP + m/SLICE groups per row, and no query copies its keys.
"""

# b batch · r rows: all leading dimensions as one · n queries · m keys · d width · t tiles, or slices, of a row
# w keys of a window, or of a slice · g groups
import math
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.reference import Call, matmul_wide, softmax, widen
from regard.kernels.span_limits import SpanLimits, Window, gaussian, merge_batch

BUDGET = 1 << 19  # elements of keys and values copied at once on a CPU: a buffer in its cache needs no new pages
MANY = 64  # number of queries from which sorting is worth its cost
TILE = 16  # queries that share one slice of keys: (TILE + 2·radius) / TILE keys are read for each query


def attend(call: Call) -> Tensor:
    """Compute the reference's sum over the window alone, for a bilinear or an additive score and softmax."""
    batch = call.batch
    parts = [choose_way(part)(part) for part in split_rows(flatten_call(call, batch))]
    context = parts[0] if len(parts) == 1 else torch.cat(parts)
    return context.reshape(*batch, *context.shape[-2:])


def choose_way(call: Call):  # type: ignore[no-untyped-def]
    """Choose one of the three ways to attend within a window."""
    window = call.limits.window
    assert window is not None
    if call.vector is not None:
        return attend_gathering
    steady = window.centre is None and window.sigma is None and isinstance(window.start, int)
    if steady and call.limits.queries >= TILE:
        nearest, furthest = window.start - window.radius, window.start + call.limits.queries + window.radius
        if nearest < call.limits.keys and furthest > 0:  # tiles must touch a key
            return attend_in_tiles
    # The number of buckets depends on the data: it would need a sync on a GPU, and a compiler cannot trace it.
    fixed = call.query.is_cuda or torch.compiler.is_compiling()
    return attend_in_buckets if call.limits.queries >= MANY and not fixed else attend_gathering


def flatten_call(call: Call, batch: tuple[int, ...]) -> Call:
    """Give the call a single leading dimension, and every limit one entry per row."""

    def start(value: int | Tensor) -> int | Tensor:
        return merge_batch(value, batch, 0) if isinstance(value, Tensor) else value

    limits, window = call.limits, call.limits.window
    assert window is not None
    window = replace(
        window,
        centre=None if window.centre is None else merge_batch(window.centre, batch, 1),
        start=start(window.start),
    )
    flat_limits = SpanLimits(
        limits.queries,
        limits.keys,
        limits.device,
        (math.prod(batch),),
        lengths=None if limits.lengths is None else merge_batch(limits.lengths, batch, 0),
        causal=None if limits.causal is None else start(limits.causal),
        window=window,
    )
    query, keys, values = (merge_batch(x, batch) for x in (call.query, call.keys, call.values))
    vector = None if call.vector is None else merge_batch(call.vector, batch, 1)
    return replace(call, query=query, keys=keys, values=values, limits=flat_limits, vector=vector)


def split_rows(call: Call) -> Iterator[Call]:
    """Split a call into groups of rows that fit a CPU's cache; do not split it on a GPU or under torch.compile."""
    limits, window = call.limits, call.limits.window
    assert window is not None
    rows, width = call.query.shape[0], call.keys.shape[-1] + call.values.shape[-1]
    few = limits.queries * (2 * window.radius + 1)  # keys that few queries copy; many queries share all of them
    copied = width * (few if choose_way(call) is attend_gathering else max(limits.queries, limits.keys))
    step = rows if call.query.is_cuda or torch.compiler.is_compiling() else max(1, BUDGET // max(1, copied))
    if step >= rows:
        yield call
        return

    def cut(value, part: slice):  # type: ignore[no-untyped-def]
        return value[part] if isinstance(value, Tensor) else value

    for part in (slice(first, first + step) for first in range(0, rows, step)):
        row_limits = replace(
            limits,
            lengths=cut(limits.lengths, part),
            causal=cut(limits.causal, part),
            window=replace(window, centre=cut(window.centre, part), start=cut(window.start, part)),
        )
        tensors = {name: cut(getattr(call, name), part) for name in ("query", "keys", "values", "vector")}
        yield replace(call, limits=row_limits, **tensors)


def attend_gathering(call: Call) -> Tensor:
    """Attend with a separate copy of the keys for every query: [r n w d]."""
    limits, window = call.limits, call.limits.window
    assert window is not None
    width = min(2 * window.radius + 1, limits.keys)
    centre = window.centres(limits.queries, limits.device).detach().expand(call.query.shape[:-1])
    # The first key inside the window, moved back so that the whole slice exists; keys outside the window are masked.
    first = torch.ceil(centre - window.radius).long().clamp(0, limits.keys - width)
    index = first[..., None] + torch.arange(width, device=limits.device)  # [r n w]
    keys, values = gather_rows(widen(call.keys), index), gather_rows(widen(call.values), index)
    if call.vector is None:
        scores = matmul_wide(keys, call.query[..., None]).squeeze(-1) * call.scale
    else:
        hidden = torch.tanh(widen(call.query)[..., None, :] + keys)
        scores = (hidden * call.vector[:, None, None].to(hidden.dtype)).sum(-1)
    weights = softmax(scores, limits.structured_mask(index), call.temperature)
    if window.sigma is not None:
        weights = weights * gaussian(window, limits.queries, index).to(weights.dtype)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    return matmul_wide(weights[..., None, :], values).squeeze(-2).to(call.values.dtype)


def gather_rows(tensor: Tensor, index: Tensor) -> Tensor:
    """Gather rows of [r m d] at [r n w] -> [r n w d], by one flat index_select.

    Its backward pass accumulates, on a GPU in the given dtype: many queries that share a key need float32.
    """
    rows, m, d = tensor.shape
    offset = torch.arange(0, rows * m, m, device=index.device).view(-1, 1, 1)
    return tensor.reshape(-1, d).index_select(0, (index + offset).flatten()).view(*index.shape, d)


def attend_in_tiles(call: Call) -> Tensor:
    """Attend from TILE queries to the TILE + 2·radius keys that any of them may see, as one small dense product."""
    limits, window = call.limits, call.limits.window
    assert window is not None
    assert isinstance(window.start, int)
    radius, tiles = window.radius, -(-limits.queries // TILE)
    query = F.pad(call.query, (0, 0, 0, tiles * TILE - limits.queries)).unflatten(-2, (tiles, TILE))
    # Key j of the padded keys is key j + start - radius of the call.
    before, padded = radius - window.start, tiles * TILE + 2 * radius
    after = padded - before - limits.keys  # negative: the last keys are beyond every window
    keys, values = (  # as slices that overlap by 2·radius: [r t d TILE+2·radius]
        F.pad(widen(x), (0, 0, before, after)).unfold(-2, TILE + 2 * radius, TILE) for x in (call.keys, call.values)
    )
    scores = matmul_wide(widen(query) * call.scale, keys)  # [r t TILE TILE+2r]
    weights = softmax(scores, tile_mask(limits, window, tiles), call.temperature)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    return matmul_wide(weights, values.mT).to(call.values.dtype).flatten(-3, -2)[..., : limits.queries, :]


def tile_mask(limits: SpanLimits, window: Window, tiles: int) -> Tensor:
    """Build the mask of a tile's keys that each query may see, [t TILE w] or [r t TILE w]."""
    assert isinstance(window.start, int)
    i = torch.arange(tiles * TILE, device=limits.device).view(tiles, TILE, 1)
    j = i[:, :1] + (window.start - window.radius) + torch.arange(TILE + 2 * window.radius, device=limits.device)
    mask = ((j - i - window.start).abs() <= window.radius) & (j >= 0) & (j < limits.keys)
    if limits.causal is not None:
        start = limits.causal if isinstance(limits.causal, int) else limits.causal[:, None, None, None]
        mask = mask & (j <= start + i)
    if limits.lengths is not None:
        mask = mask & (j < limits.lengths[:, None, None, None])
    return mask


# ---- buckets


SLICE = 16  # keys from the beginning of one slice to that of the next
GROUP = 32  # queries that share one slice


def attend_in_buckets(call: Call) -> Tensor:
    """Compute the reference's sum, for a bilinear score and softmax; the number of groups depends on the data."""
    limits, window = call.limits, call.limits.window
    assert window is not None
    rows, n = call.query.shape[:2]
    width, slices = SLICE + 2 * window.radius + 1, -(-limits.keys // SLICE)
    centre = window.centres(n, limits.device).expand(rows, n).flatten()
    first = torch.ceil(centre.detach() - window.radius).long().clamp(0, limits.keys - 1)
    index = torch.arange(rows * n, device=limits.device)
    slot, bucket = sort_into_groups(index // n * slices + first // SLICE, rows * slices)

    def grouped(x: Tensor) -> Tensor:  # [r·n …] -> [g GROUP …]
        return x.new_zeros(len(bucket) * GROUP, *x.shape[1:]).index_copy(0, slot, x).unflatten(0, (-1, GROUP))

    keys, values = (
        cut_slices(widen(x), slices, width).index_select(0, bucket).unflatten(-1, (width, -1))  # backward accumulates
        for x in (call.keys, call.values)
    )
    scores = matmul_wide(widen(grouped(call.query.flatten(0, 1))) * call.scale, keys.mT)  # [g GROUP w]
    j = (bucket % slices * SLICE)[:, None, None] + torch.arange(width, device=limits.device)
    row, distance = grouped(index // n), j - grouped(centre)[..., None]
    weights = softmax(scores, slice_mask(limits, j, distance, row, grouped(index % n)), call.temperature)
    if window.sigma is not None:
        weights = weights * torch.exp(distance.square() * (-0.5 / window.sigma**2)).to(weights.dtype)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    context = matmul_wide(weights, values).to(call.values.dtype).flatten(0, 1)
    return context.index_select(0, slot).unflatten(0, (rows, n))


def sort_into_groups(bucket: Tensor, buckets: int) -> tuple[Tensor, Tensor]:
    """Assign each query a slot, in groups of one bucket each, and return the bucket of every group."""
    count = torch.bincount(bucket, minlength=buckets)
    groups = (count + GROUP - 1) // GROUP
    order = bucket.argsort(stable=True)
    sorted_bucket = bucket[order]
    rank = torch.arange(len(bucket), device=bucket.device) - (count.cumsum(0) - count)[sorted_bucket]
    slot = torch.empty_like(bucket)
    slot[order] = (groups.cumsum(0) - groups)[sorted_bucket] * GROUP + rank
    return slot, torch.repeat_interleave(torch.arange(buckets, device=bucket.device), groups)


def cut_slices(x: Tensor, slices: int, width: int) -> Tensor:
    """Cut [r m d] into slices of `width` keys, one every SLICE, [r·t w·d], so that a slice is one contiguous copy."""
    padded = F.pad(x, (0, 0, 0, slices * SLICE - SLICE + width - x.shape[-2]))
    return padded.unfold(-2, width, SLICE).mT.reshape(-1, width * x.shape[-1])


def slice_mask(limits: SpanLimits, j: Tensor, distance: Tensor, row: Tensor, position: Tensor) -> Tensor:
    """Build the mask of a slice's keys that each query of a group may see, [g GROUP w]."""
    assert limits.window is not None
    mask = distance.detach().abs() <= limits.window.radius
    mask = mask & (j < (limits.keys if limits.lengths is None else limits.lengths[row][..., None]))
    if limits.causal is not None:
        start = limits.causal if isinstance(limits.causal, int) else limits.causal[row]
        mask = mask & (j <= (start + position)[..., None])
    return mask
