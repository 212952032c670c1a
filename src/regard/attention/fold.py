"""Attention over blocks of keys that arrive one after the other, by merging partial softmaxes."""

# b batch · n queries · m keys of a block · dv value width
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.cache import Prepared
from regard.attention.joined_span import is_plain, narrow_limits, parts_of
from regard.attention.score import Score, check_location, compare_from
from regard.attention.span import Lengths, Mask, Packed, Predictive, Span
from regard.attention.weighting import Softmax, Weighting
from regard.errors import ArgumentError, ShapeError
from regard.kernels import SpanLimits, broadcast, matmul_wide, widen

UNKNOWN = 1 << 60  # keys still to come


@dataclass(frozen=True)
class PartialSoftmax:
    """The softmax so far: highest score, sum of exponentials, sum of weighted values."""

    highest: Tensor  # [*b n 1]
    total: Tensor  # [*b n 1]
    weighted_sum: Tensor  # [*b n dv]

    def merge(self, other: "PartialSoftmax") -> "PartialSoftmax":
        """Merge two partial softmaxes, on the higher of their two scales."""
        highest = torch.maximum(self.highest, other.highest)
        mine, theirs = torch.exp(self.highest - highest), torch.exp(other.highest - highest)
        return PartialSoftmax(
            highest, self.total * mine + other.total * theirs, self.weighted_sum * mine + other.weighted_sum * theirs
        )


def fold(
    query: Tensor, blocks: Iterable[Prepared], span: Span | None, score: Score, weighting: Weighting, dropout: float
) -> Tensor:
    """The context of every query over the blocks' keys and values laid end to end."""
    if getattr(weighting.weigh, "__func__", None) is not Softmax.weigh:
        raise ArgumentError(f"fold: {type(weighting).__name__} given, expected Softmax, whose sums can be merged")
    parts = parts_of(span)
    if any(isinstance(part, Packed) for part in parts):
        raise ArgumentError("fold: Packed given, expected padded sequences")
    if any(isinstance(part, Predictive) for part in parts) and not any(isinstance(part, Lengths) for part in parts):
        raise ArgumentError("fold: Predictive given without Lengths, expected both: its centre needs the true length")
    widths = {part.mask.shape[-1] for part in parts if isinstance(part, Mask) and is_plain(part, Mask)} - {1}
    expected = widths.pop() if widths else UNKNOWN
    state, first = None, 0
    for prepared in blocks:
        last = first + prepared.keys.shape[-2]
        if last > expected:
            raise ShapeError(f"mask: {expected} keys given, expected at least {last}, the keys so far")
        new = fold_block(query, prepared, span, score, weighting.temperature, dropout, expected, first)
        state, first = new if state is None else state.merge(new), last
    if state is None:
        raise ShapeError("blocks: none given, expected at least one (keys, values)")
    if first != expected != UNKNOWN:
        raise ShapeError(f"mask: {expected} keys given, expected {first}, the number of keys")
    for part in parts:
        if isinstance(part, Lengths) and part.most is not None and part.most > first:
            raise ShapeError(f"lengths: {part.most} given, expected 0 … {first}, the number of keys")
    # A query with nothing to look at has sums of zero; divided by one they stay zero, with finite gradients.
    return (state.weighted_sum / state.total.masked_fill(state.total == 0, 1.0)).to(query.dtype)


def fold_block(
    query: Tensor,
    prepared: Prepared,
    span: Span | None,
    score: Score,
    temperature: float,
    dropout: float,
    keys: int,
    first: int,
) -> PartialSoftmax:
    """Return the softmax of one block of keys, not yet divided by its sum."""
    projected_query = score.ask(query)
    last = first + prepared.keys.shape[-2]
    batch = broadcast(projected_query.shape[:-2], prepared.keys.shape[:-2])
    limits = SpanLimits(projected_query.shape[-2], keys, projected_query.device, batch)
    if span is not None:
        try:
            limits = narrow_limits(span, limits, query)
        except RuntimeError as error:
            if keys != UNKNOWN:
                raise
            raise ArgumentError(
                f"fold: {span!r} given, whose `narrow` needs the number of keys, which is not known while blocks come"
            ) from error
    if limits.window is not None:
        check_location(score)
    scores = widen(compare_from(score, projected_query, prepared.keys, first))
    bias, gate, mask = (part(first, last) for part in (limits.bias, limits.gate, limits.mask))
    if prepared.length is not None:  # a cache that is not full
        there = torch.arange(last - first, device=projected_query.device) < prepared.length[..., None, None]
        mask = there if mask is None else mask & there
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    scores = scores / temperature
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    highest = scores.amax(-1, keepdim=True).detach()
    weights = torch.exp(scores - highest)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    total = weights.sum(-1, keepdim=True)
    if gate is not None:
        weights = weights * gate.to(weights.dtype)
    if dropout:
        weights = F.dropout(weights, dropout)
    return PartialSoftmax(highest, total, matmul_wide(weights, prepared.values))
