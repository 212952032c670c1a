"""Local attention by buckets: queries whose windows lie close together share one slice of keys.

Keys are cut into slices that start every TILE keys and overlap by a window, so that every window lies inside one slice.
Queries are sorted by slice and taken GROUP at a time; a group and its slice are one small dense product. For centres
anywhere, n queries need at most n/GROUP + m/TILE groups a row, and no query gets a copy of its keys.
"""

# r rows · n queries · m keys · d width · t slices a row · w keys of a slice · g groups
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.reference import Call, matmul_wide, softmax, widen
from regard.kernels.span_limits import SpanLimits

TILE = 16
GROUP = 32


def attend(call: Call) -> Tensor:
    """Compute the reference's sum, for a bilinear score and softmax; the number of groups depends on the data."""
    limits, window = call.limits, call.limits.window
    assert window is not None
    rows, n = call.query.shape[:2]
    width, slices = TILE + 2 * window.radius + 1, -(-limits.keys // TILE)
    centre = window.centres(n, limits.device).expand(rows, n).flatten()
    first = torch.ceil(centre.detach() - window.radius).long().clamp(0, limits.keys - 1)
    index = torch.arange(rows * n, device=limits.device)
    slot, bucket = sort_into_groups(index // n * slices + first // TILE, rows * slices)

    def grouped(x: Tensor) -> Tensor:  # [r·n …] -> [g GROUP …]
        return x.new_zeros(len(bucket) * GROUP, *x.shape[1:]).index_copy(0, slot, x).unflatten(0, (-1, GROUP))

    keys, values = (
        cut(widen(x), slices, width).index_select(0, bucket).unflatten(-1, (width, -1))  # whose backward adds
        for x in (call.keys, call.values)
    )
    scores = matmul_wide(widen(grouped(call.query.flatten(0, 1))) * call.scale, keys.mT)  # [g GROUP w]
    j = (bucket % slices * TILE)[:, None, None] + torch.arange(width, device=limits.device)
    row, distance = grouped(index // n), j - grouped(centre)[..., None]
    weights = softmax(scores, slice_mask(limits, j, distance, row, grouped(index % n)), call.temperature)
    if window.sigma is not None:
        weights = weights * torch.exp(distance.square() * (-0.5 / window.sigma**2)).to(weights.dtype)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    context = matmul_wide(weights, values).to(call.values.dtype).flatten(0, 1)
    return context.index_select(0, slot).unflatten(0, (rows, n))


def sort_into_groups(bucket: Tensor, buckets: int) -> tuple[Tensor, Tensor]:
    """Assign each query a place among groups of one bucket each, and return the bucket of every group."""
    count = torch.bincount(bucket, minlength=buckets)
    groups = (count + GROUP - 1) // GROUP
    order = bucket.argsort(stable=True)
    sorted_bucket = bucket[order]
    rank = torch.arange(len(bucket), device=bucket.device) - (count.cumsum(0) - count)[sorted_bucket]
    slot = torch.empty_like(bucket)
    slot[order] = (groups.cumsum(0) - groups)[sorted_bucket] * GROUP + rank
    return slot, torch.repeat_interleave(torch.arange(buckets, device=bucket.device), groups)


def cut(x: Tensor, slices: int, width: int) -> Tensor:
    """Cut [r m d] into slices of `width` keys, one every TILE, [r·t w·d]; a whole slice is then copied at once."""
    padded = F.pad(x, (0, 0, 0, slices * TILE - TILE + width - x.shape[-2]))
    return padded.unfold(-2, width, TILE).mT.reshape(-1, width * x.shape[-1])


def slice_mask(limits: SpanLimits, j: Tensor, distance: Tensor, row: Tensor, position: Tensor) -> Tensor:
    """Build the mask of the keys of its slice that each query of a group may look at, [g GROUP w]."""
    assert limits.window is not None
    mask = distance.detach().abs() <= limits.window.radius
    mask = mask & (j < (limits.keys if limits.lengths is None else limits.lengths[row][..., None]))
    if limits.causal is not None:
        start = limits.causal if isinstance(limits.causal, int) else limits.causal[row]
        mask = mask & (j <= (start + position)[..., None])
    return mask
