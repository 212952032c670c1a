"""Additive attention in Triton: scores, softmax and the sum of values without [*b n m h] in memory, both directions.

The scores are the dear part (n · m · h of tanh against n · m · dv multiply-adds on tensor cores), so they have a kernel
of their own; they stand in memory in float32, [*b n m], once for the backward pass, or a few rows at a time without.
"""

# b batch · r rows: all leading dimensions as one · a heads · n queries · m keys · h hidden · dv value width
import math

import torch
from torch import Tensor

from regard.kernels.reference import Call
from regard.kernels.span_limits import merge_batch
from regard.kernels.triton import additive_backward as back
from regard.kernels.triton import additive_forward as forward
from regard.kernels.triton import operation
from regard.kernels.triton.additive_forward import NONE, pad_size


def attend(call: Call) -> Tensor:
    """The reference's sum for an additive score and softmax, under lengths, causality, one window and masks."""
    assert call.vector is not None
    batch = call.batch
    vector = call.vector if call.vector.ndim == 2 else call.vector[None]
    inputs = (call.query, call.keys, call.values, call.vector)
    save = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    tensors = (merge_batch(x, batch) for x in inputs[:3])
    context = serve(*tensors, vector, *limit_arguments(call, batch), call.temperature, save)[0]
    return context.reshape(*batch, *context.shape[-2:])


def limit_arguments(
    call: Call, batch: tuple[int, ...]
) -> tuple[Tensor | None, Tensor | None, int, Tensor | None, int, int, Tensor | None]:
    """Lengths; where causality starts, a row each or one number; the window's start likewise and its radius; the mask.

    No causality is a start of `NONE`, no window a radius of -1. The mask is [b' b'' n m] with strides of 0 where it
    broadcasts, r = b' · b''.
    """
    limits, window = call.limits, call.limits.window

    def each(value: Tensor) -> Tensor:  # side by side, as a kernel reads them: a reshape alone may stay a broadcast
        return merge_batch(value, batch, 0).contiguous()

    lengths = None if limits.lengths is None else each(limits.lengths)
    causal = each(limits.causal) if isinstance(limits.causal, Tensor) else None
    start = limits.causal if isinstance(limits.causal, int) else NONE
    centre, middle, radius = None, 0, -1
    if window is not None:
        centre = each(window.start) if isinstance(window.start, Tensor) else None
        middle = window.start if isinstance(window.start, int) else 0
        radius = window.radius
    mask = None
    for part in limits.masks:
        mask = part if mask is None else mask & part
    if mask is not None:
        mask = mask.expand(*batch, limits.queries, limits.keys)
        mask = mask[None, None] if not batch else mask[:, None] if len(batch) == 1 else mask.flatten(0, -4)
    return lengths, causal, start, centre, middle, radius, mask


def compute(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    vector: Tensor,
    lengths: Tensor | None,
    causal: Tensor | None,
    start: int,
    centre: Tensor | None,
    middle: int,
    radius: int,
    mask: Tensor | None,
    temperature: float,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """[r n h], [r m h], [r m dv] and [a h] -> contexts [r n dv]; and, where kept, scores and their log-sum-exp."""
    (rows, n, _), (m, dv) = query.shape, values.shape[-2:]
    context = values.new_empty(rows, n, dv)
    n_pad, m_pad, none = pad_size(n), pad_size(m), query.new_empty(0, dtype=torch.float32)
    if context.numel() == 0 or m == 0:
        return context.zero_(), none, none.clone()
    inner = 1 if mask is None else mask.shape[1]
    group = math.lcm(vector.shape[0], inner)  # a row's head and mask are found by its place among so many
    step = rows if save else forward.rows_at_once(rows, 4 * n_pad * m_pad, group)
    scored, lse = (query.new_empty(size, dtype=torch.float32) for size in ((step, n_pad, m_pad), (step, n_pad)))
    for first in range(0, rows, step):
        part = slice(first, first + step)
        some = [None if x is None else x[part] for x in (lengths, causal, centre)]
        rows_mask = None if mask is None else mask[first // inner : (first + step) // inner]
        limits = (some[0], some[1], start, some[2], middle, radius, rows_mask)
        partial = forward.score(query[part], keys[part], vector, scored, limits, temperature)
        forward.weigh(scored, partial, values[part], context[part], lse, limits[:-1])
    if save:
        return context, scored, lse
    return context, none, none.clone()


def shapes(query, keys, values, *others):  # type: ignore[no-untyped-def]
    """Return tensors of the shapes that `compute` returns."""
    rows, n, m = query.shape[0], query.shape[1], keys.shape[1]
    context = values.new_empty(rows, n, values.shape[-1])
    save = others[-1] and context.numel() and m
    sizes = ((rows, pad_size(n), pad_size(m)), (rows, pad_size(n))) if save else ((0,), (0,))
    return context, *(query.new_empty(size, dtype=torch.float32) for size in sizes)


def compute_backward(
    grad: Tensor,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    vector: Tensor,
    lengths: Tensor | None,
    causal: Tensor | None,
    start: int,
    centre: Tensor | None,
    middle: int,
    radius: int,
    temperature: float,
    context: Tensor,
    scored: Tensor,
    lse: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of query, keys, values and vector."""
    limits = (lengths, causal, start, centre, middle, radius)
    if scored.numel() == 0:
        return torch.zeros_like(query), torch.zeros_like(keys), torch.zeros_like(values), torch.zeros_like(vector)
    g, turned, d_values = back.weights_backward(grad, values, context, scored, lse, limits, temperature)
    d_query, d_keys, d_vector = back.scores_backward(g, turned, query, keys, vector, limits)
    return d_query, d_keys, d_values, d_vector


def gradient_shapes(grad, query, keys, values, vector, *others):  # type: ignore[no-untyped-def]
    """Return tensors of the shapes of the gradients."""
    return tuple(x.new_empty(x.shape) for x in (query, keys, values, vector))


def keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    query, keys, values, vector, lengths, causal, start, centre, middle, radius, _, temperature, _ = inputs
    context, scored, lse = output
    ctx.save_for_backward(query, keys, values, vector, lengths, causal, centre, context, scored, lse)
    ctx.numbers = start, middle, radius, temperature
    ctx.set_materialize_grads(False)


def gradients(ctx, grad, backward):  # type: ignore[no-untyped-def]
    query, keys, values, vector, lengths, causal, centre, context, scored, lse = ctx.saved_tensors
    start, middle, radius, temperature = ctx.numbers
    if grad is None:
        return (None,) * 13
    limits = lengths, causal, start, centre, middle, radius
    grads = backward(grad, query, keys, values, vector, *limits, temperature, context, scored, lse)
    return *grads, *(None,) * 9


additive, serve = operation("additive_attention", compute, compute_backward, (shapes, gradient_shapes), keep, gradients)
