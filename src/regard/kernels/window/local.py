"""Local attention: each query meets the 2·radius + 1 keys of its window and few others.

A window that moves one key a query (local-m) is cut into tiles that neighbouring queries share. Many windows anywhere
(local-p) are sorted into buckets. Few queries, or an additive score, whose cost is in the comparing and not in the
copying, take a copy of their keys each.
"""

# b batch · n queries · m keys · w keys of a window · d width · t tiles
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.reach import Window, gaussian
from regard.kernels.reference import Call, softmax
from regard.kernels.window import bucketed

__all__ = ["attend"]

MANY = 64  # queries from which sorting them pays
TILE = 32  # queries that share one slice of keys: (TILE + 2·radius) / TILE keys are read for each that is needed


def attend(call: Call) -> Tensor:
    """The same sum as the reference's over the window alone; a bilinear or an additive score, softmax."""
    window = call.reach.window
    assert window is not None
    batch = torch.broadcast_shapes(call.query.shape[:-2], call.keys.shape[:-2], call.values.shape[:-2])
    if call.vector is None and window.centre is None and isinstance(window.start, int) and call.reach.queries >= TILE:
        return tiled(call, window, batch)
    # The number of buckets hangs on the data: a GPU would be waited for, and a compiler cannot know it.
    fixed = call.query.is_cuda or torch.compiler.is_compiling()
    if call.vector is None and call.reach.queries >= MANY and not fixed:
        return bucketed.attend(call)
    return gathered(call, window, batch)


def gathered(call: Call, window: Window, batch: torch.Size) -> Tensor:
    """Every query with its own copy of its keys: [*b n w d]."""
    reach = call.reach
    width = min(2 * window.radius + 1, reach.keys)
    centre = window.centres(reach.queries, reach.device)
    # The first key inside, moved back so that the whole slice exists; what is then outside the window is masked.
    first = torch.ceil(centre.detach() - window.radius).long().clamp(0, reach.keys - width)
    index = first[..., None] + torch.arange(width, device=reach.device)  # [*b n w]
    keys, values = pick(call.keys, index, batch), pick(call.values, index, batch)
    if call.vector is None:
        scores = (keys @ call.query[..., None]).squeeze(-1) * call.scale
    else:
        vector = call.vector if call.vector.ndim == 1 else call.vector[:, None, None]
        scores = (torch.tanh(call.query[..., None, :] + keys) * vector.to(keys.dtype)).sum(-1)
    weights = softmax(scores, reach.limits(index), call.temperature)
    if window.sigma is not None:
        weights = weights * gaussian(window, reach.queries, index).to(weights.dtype)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    return (weights[..., None, :] @ values).squeeze(-2)


def tiled(call: Call, window: Window, batch: torch.Size) -> Tensor:
    """TILE queries and the TILE + 2·radius keys that any of them may see, as one small dense product."""
    reach, radius = call.reach, window.radius
    assert isinstance(window.start, int)
    tiles = -(-reach.queries // TILE)
    query = F.pad(call.query, (0, 0, 0, tiles * TILE - reach.queries)).unflatten(-2, (tiles, TILE))
    # Key j of the padded keys is key j + start - radius of the call.
    before, wanted = radius - window.start, tiles * TILE + 2 * radius
    after = wanted - before - reach.keys  # negative: those keys are beyond every window
    keys, values = (tiles_of(F.pad(x, (0, 0, before, after)), radius) for x in (call.keys, call.values))
    scores = (query * call.scale) @ keys  # [*b t TILE TILE+2r]
    i = torch.arange(tiles * TILE, device=reach.device).view(tiles, TILE, 1)
    j = i[:, :1] - before + torch.arange(TILE + 2 * radius, device=reach.device)
    mask = ((j - i - window.start).abs() <= radius) & (j >= 0) & (j < reach.keys)
    if reach.causal is not None:
        start = reach.causal if isinstance(reach.causal, int) else reach.causal[..., None, None, None]
        mask = mask & (j <= start + i)
    if reach.lengths is not None:
        mask = mask & (j < reach.lengths[..., None, None, None])
    weights = softmax(scores, mask, call.temperature)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    return (weights @ values.mT).flatten(-3, -2)[..., : reach.queries, :].expand(*batch, -1, -1)


def tiles_of(padded: Tensor, radius: int) -> Tensor:
    """[*b m d] -> [*b t d TILE+2r]: slices that overlap by 2r, a view."""
    return padded.unfold(-2, TILE + 2 * radius, TILE)


def pick(tensor: Tensor, index: Tensor, batch: torch.Size) -> Tensor:
    """Rows of [*b m d] at [*b n w] -> [*b n w d], by one flat index_select (its backward adds into the rows)."""
    m, d = tensor.shape[-2:]
    flat = tensor.expand(*batch, m, d).reshape(-1, d)
    index = index.expand(*batch, *index.shape[-2:])
    offset = torch.arange(0, flat.shape[0], m, device=index.device).view(*batch, 1, 1)
    return flat.index_select(0, (index + offset).flatten()).view(*index.shape, d)
