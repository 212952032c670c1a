"""The numbers behind a view: q, k and v of every head, the mask, and all else that its weights are computed from.

A page holds them in half precision and computes any row of any head from them, without the model.
"""

# b rows of a batch: sentences of a document, otherwise one · h heads · n rows · m columns · d width
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention, GridSelfAttention, Heads
from regard.inspection.collect.exhibit import Addressing, Numbers, View
from regard.inspection.collect.memory_heads import MEMORY_VIEWS, memory_numbers
from regard.inspection.collect.stages import ResolvedCall, projections, resolve_call
from regard.inspection.collect.teacher_forcing import ForwardPass
from regard.inspection.collect.views import by_sentence
from regard.models import Documents


@torch.no_grad()
def add_numbers(forward: ForwardPass, views: Sequence[View]) -> tuple[View, ...]:
    """Return the views, each with its numbers where it has any."""
    return tuple(replace(view, numbers=numbers_of(forward, view)) for view in views)


def numbers_of(forward: ForwardPass, view: View) -> Numbers | Addressing | None:
    """Return the numbers that a view's weights are computed from; None where it is no attention over known keys."""
    if view.name in MEMORY_VIEWS:
        return memory_numbers(forward.head_steps, view.name, view.weights.shape[1])
    module, records = forward.module(view.name), forward.calls(view.name)
    if not isinstance(module, Attention | Heads | GridSelfAttention):
        return None
    own = projections(forward.recording, view.name) if len(records) == 1 else None
    resolved = [resolve_call(module, record, own) for record in records]
    formulas = {symbol: formula for symbol, (formula, _) in forward.model.notation.of(view.name).items() if formula}
    if by_sentence(forward, view.name):
        assert isinstance(forward.forced.source, Documents)
        return sentence_numbers(resolved[0], forward.forced.source.words.lengths.tolist(), formulas)
    return joined_numbers(resolved, view.weights.shape[-1], formulas)


def joined_numbers(calls: Sequence[ResolvedCall], columns: int, formulas: dict[str, str]) -> Numbers:
    """Collect the numbers of one call, or of calls that follow one another, as in a recurrent decoder."""
    first = calls[0].call
    plain = all(each.call.score == first.score and each.call.scale == first.scale for each in calls)
    keys, values = (
        shared_keys(calls, [part(each, tensor) for each, tensor in zip(calls, tensors, strict=True)], columns)
        for tensors in ([each.call.keys for each in calls], [each.call.values for each in calls])
    )
    form = first.score if plain and keys is not None and first.score in ("bilinear", "additive") else "other"
    softmax = all(each.call.weighting == "softmax" and each.look.picked is None for each in calls)
    masks = [each.call.limits.mask() for each in calls]
    if any(each.look.weights.shape[-1] < columns for each in calls):  # a tape that grows
        masks = [torch.ones(1) if mask is None else mask for mask in masks]
    mask = table(calls, columns, masks, 1.0)
    return Numbers(
        score="stored" if form == "other" else "dot" if form == "bilinear" else "additive",
        scale=float(first.scale),
        temperature=float(first.temperature) if softmax else 1.0,
        query=None if form == "other" else torch.cat([part(each, each.call.query) for each in calls], 1),
        keys=None if form == "other" else keys,
        values=values,
        vector=None if form != "additive" or first.vector is None else vector_of(first.vector),
        scores=table(calls, columns, [each.look.scores for each in calls]) if form == "other" else None,
        bias=table(calls, columns, [each.call.limits.bias() for each in calls]),
        gate=table(calls, columns, [each.call.limits.gate() for each in calls], 1.0),
        mask=None if mask is None else mask > 0,
        weights=None if softmax else table(calls, columns, [each.look.weights for each in calls]),
        formulas=formulas,
    )


def sentence_numbers(resolved: ResolvedCall, lengths: Sequence[int], formulas: dict[str, str]) -> Numbers:
    """Collect the numbers of a learned query that looks at each sentence by itself, with the keys side by side."""
    call = resolved.call
    form = call.score if call.score in ("bilinear", "additive") else "other"
    softmax = call.weighting == "softmax" and resolved.look.picked is None

    def beside(tensor: Tensor) -> Float[Tensor, "1 m c"]:
        rows = tensor.expand(len(lengths), *tensor.shape[-2:])
        return torch.cat([row[:length] for row, length in zip(rows, lengths, strict=True)])[None].float().cpu()

    def weighed(tensor: Tensor) -> Float[Tensor, "1 1 m"]:
        return beside(tensor.mT).mT

    query = call.query.reshape(-1, *call.query.shape[-2:])[:1].float().cpu()
    return Numbers(
        score="stored" if form == "other" else "dot" if form == "bilinear" else "additive",
        scale=float(call.scale),
        temperature=float(call.temperature) if softmax else 1.0,
        query=None if form == "other" else query,
        keys=None if form == "other" else beside(call.keys),
        values=beside(call.values),
        vector=None if form != "additive" or call.vector is None else vector_of(call.vector),
        scores=weighed(resolved.look.scores) if form == "other" else None,
        weights=None if softmax else weighed(resolved.look.weights),
        groups=tuple(number for number, length in enumerate(lengths) for _ in range(length)),
        formulas=formulas,
    )


def part(resolved: ResolvedCall, tensor: Tensor) -> Float[Tensor, "h x c"]:
    """Return [*b (h) x c] of the only row of the batch, with its heads."""
    full = tensor.expand(*resolved.look.weights.shape[:-2], *tensor.shape[-2:])
    full = full.reshape(-1, *full.shape[-3:])[0] if resolved.heads else full.reshape(-1, *full.shape[-2:])[:1]
    return full.float().cpu()


def shared_keys(
    calls: Sequence[ResolvedCall], tensors: Sequence[Float[Tensor, "h _ c"]], columns: int
) -> Float[Tensor, "h m c"] | None:
    """Return the keys of the longest call, if those of every other call are a prefix of them; else None."""
    last = max(reversed(tensors), key=lambda each: each.shape[1])
    for resolved, tensor in zip(calls, tensors, strict=True):
        has_weight = part(resolved, resolved.look.weights).ne(0).any(1)  # [h m]; nothing stands on an empty tape
        beginning = last[:, : tensor.shape[1]]
        # Projected in a batch of another size, the same numbers may differ in their last digit.
        if not torch.allclose(tensor[has_weight], beginning[has_weight], rtol=1e-4, atol=1e-6):
            return None
    return F.pad(last, (0, 0, 0, columns - last.shape[1]))


def table(
    calls: Sequence[ResolvedCall], columns: int, tensors: Sequence[Tensor | None], default: float = 0.0
) -> Float[Tensor, "h n m"] | None:
    """Stack the tables [h n m] of all calls, with zeros for keys that a call does not have.

    The `default` stands for None where only some of them are; where all are, the result is None.
    """
    if all(tensor is None for tensor in tensors):
        return None
    rows = []
    for resolved, tensor in zip(calls, tensors, strict=True):
        shape = resolved.look.weights.shape
        whole = torch.full(shape, default) if tensor is None else tensor.expand(shape)
        rows.append(F.pad(part(resolved, whole), (0, columns - shape[-1])))
    joined = torch.cat(rows, 1)
    same = len(joined) > 1 and bool((joined == joined[:1]).all())
    return joined[:1] if same else joined


def vector_of(vector: Tensor) -> Float[Tensor, "h c"]:
    """Return the v of an additive score, a row per head or one for all."""
    return vector.reshape(-1, vector.shape[-1]).float().cpu()
