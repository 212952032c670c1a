"""Local attention by buckets: queries whose windows lie close together share one slice of keys.

Keys are cut into slices that start every TILE keys and overlap by a window, so that every window lies inside one slice.
Queries are sorted by slice and taken GROUP at a time; a group and its slice are one small dense product. For centres
anywhere, n queries need at most n/GROUP + m/TILE groups a row, and no query gets a copy of its keys.
"""

# r rows (all leading dimensions) · n queries · m keys · d width · t slices a row · w keys of a slice · g groups
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.reach import Reach, Window
from regard.kernels.reference import Call, softmax

__all__ = ["attend"]

TILE = 32
GROUP = 32


def attend(call: Call) -> Tensor:
    """The same sum as the reference's, for a bilinear score and softmax; the number of groups hangs on the data."""
    reach, window = call.reach, call.reach.window
    assert window is not None
    batch = torch.broadcast_shapes(call.query.shape[:-2], call.keys.shape[:-2], call.values.shape[:-2])
    n, width = reach.queries, TILE + 2 * window.radius + 1
    slices = -(-reach.keys // TILE)
    centre = window.centres(n, reach.device).expand(*batch, n).reshape(-1)  # [r·n]
    first = torch.ceil(centre.detach() - window.radius).long().clamp(0, reach.keys - 1)
    row = torch.arange(len(centre), device=reach.device) // n
    slot, bucket = sort_into_groups(row * slices + first // TILE, len(centre) // n * slices)

    def grouped(x: Tensor) -> Tensor:  # [r·n …] -> [g GROUP …]
        return x.new_zeros(len(bucket) * GROUP, *x.shape[1:]).index_copy(0, slot, x).unflatten(0, (-1, GROUP))

    query = grouped(call.query.expand(*batch, -1, -1).reshape(len(centre), -1))
    keys, values = (
        cut(x.expand(*batch, -1, -1), slices, width).index_select(0, bucket) for x in (call.keys, call.values)
    )
    scores = (query * call.scale) @ keys.unflatten(-1, (width, -1)).mT  # [g GROUP w]
    j = (bucket % slices * TILE)[:, None, None] + torch.arange(width, device=reach.device)
    p = grouped(centre)[..., None]
    mask = limits(reach, window, batch, j, p, grouped(row), grouped(torch.arange(len(centre), device=reach.device) % n))
    weights = softmax(scores, mask, call.temperature)
    if window.sigma is not None:
        weights = weights * torch.exp(-((j - p) ** 2) / (2 * window.sigma**2)).to(weights.dtype)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    context = (weights @ values.unflatten(-1, (width, -1))).flatten(0, 1)
    return context.index_select(0, slot).reshape(*batch, n, -1)


def sort_into_groups(bucket: Tensor, buckets: int) -> tuple[Tensor, Tensor]:
    """Where each query goes among groups of one bucket each, and the bucket of every group."""
    count = torch.bincount(bucket, minlength=buckets)
    groups = (count + GROUP - 1) // GROUP
    order = bucket.argsort(stable=True)
    sorted_bucket = bucket[order]
    rank = torch.arange(len(bucket), device=bucket.device) - (count.cumsum(0) - count)[sorted_bucket]
    slot = torch.empty_like(bucket)
    slot[order] = (groups.cumsum(0) - groups)[sorted_bucket] * GROUP + rank
    return slot, torch.repeat_interleave(torch.arange(buckets, device=bucket.device), groups)


def cut(x: Tensor, slices: int, width: int) -> Tensor:
    """[*b m d] -> [r·t w·d]: slices of `width` keys, one every TILE."""
    padded = F.pad(x, (0, 0, 0, slices * TILE - TILE + width - x.shape[-2]))
    return padded.unfold(-2, width, TILE).mT.reshape(-1, width * x.shape[-1])


def limits(
    reach: Reach, window: Window, batch: torch.Size, j: Tensor, p: Tensor, row: Tensor, position: Tensor
) -> Tensor:
    """Which keys of its slice each query of a group may see, [g GROUP w]."""
    mask = ((j - p.detach()).abs() <= window.radius) & (j < reach.keys)
    if reach.lengths is not None:
        mask = mask & (j < reach.lengths.expand(batch).reshape(-1)[row][..., None])
    if reach.causal is not None:
        start = reach.causal if isinstance(reach.causal, int) else reach.causal.expand(batch).reshape(-1)[row]
        mask = mask & (j <= (start + position)[..., None])
    return mask
