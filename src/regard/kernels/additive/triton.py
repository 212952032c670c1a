"""Additive attention in Triton: scores, softmax and the sum of values without [*b n m h] in memory, both directions.

The scores are the dear part (n · m · h of tanh against n · m · dv multiply-adds on tensor cores), so they have a kernel
of their own; they stand in memory in float32, [*b n m], once for the backward pass, or a few rows at a time without.
"""

# b batch · r rows: all leading dimensions as one · a heads · n queries · m keys · h hidden · dv value width
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from regard.kernels.reference import Call
from regard.kernels.span_limits import broadcast
from regard.kernels.triton import eager_function

BLOCK = 64  # queries and keys of a tile
ROOM = 1 << 28  # bytes of scores held at once where no backward pass needs them
TILE = {"QR": 8, "QT": 8, "KR": 4, "KT": 16, "num_warps": 4, "num_stages": 1, "maxnreg": 128}  # BLOCK by BLOCK
SWEEP = {"OR": 4, "OT": 4, "DR": 4, "DT": 16, "num_warps": 4, "num_stages": 1}
SUM = {"BV": 128, "num_warps": 4, "num_stages": 2}
GRADIENT = {"BV": 64, "num_warps": 4, "num_stages": 2}


def attend(call: Call) -> Tensor:
    """The reference's sum for an additive score and softmax, under lengths, causality, one window and masks."""
    assert call.vector is not None
    batch = broadcast(call.query.shape[:-2], call.keys.shape[:-2], call.values.shape[:-2])
    rows = math.prod(batch)

    def flat(x: Tensor) -> Tensor:
        return x.expand(*batch, *x.shape[-2:]).reshape(rows, *x.shape[-2:])

    vector = call.vector if call.vector.ndim == 2 else call.vector[None]
    inputs = (call.query, call.keys, call.values, call.vector)
    save = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    serve: Callable[..., tuple[Tensor, ...]] = compute
    if torch.compiler.is_compiling():
        serve = additive
    elif save:
        serve = Eager.apply
    tensors = (flat(call.query), flat(call.keys), flat(call.values), vector)
    context = serve(*tensors, *limit_arguments(call, batch), call.temperature, save)[0]
    return context.reshape(*batch, *context.shape[-2:])


def limit_arguments(
    call: Call, batch: tuple[int, ...]
) -> tuple[Tensor | None, Tensor | None, int, Tensor | None, int, int, Tensor | None]:
    """Lengths; where causality starts, a row each or one number; the window's start likewise and its radius; the mask.

    No causality is a start of `NONE`, no window a radius of -1. The mask is [b' b'' n m] with strides of 0 where it
    broadcasts, r = b' · b''.
    """
    limits, window = call.limits, call.limits.window
    rows = math.prod(batch)

    def each(value: Tensor) -> Tensor:  # side by side, as a kernel reads them: a reshape alone may stay a broadcast
        return value.expand(batch).reshape(rows).contiguous()

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


NONE = -(1 << 62)


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
    n_pad, m_pad, none = padded(n), padded(m), query.new_empty(0, dtype=torch.float32)
    if context.numel() == 0 or m == 0:
        return context.zero_(), none, none.clone()
    inner = 1 if mask is None else mask.shape[1]
    group = math.lcm(vector.shape[0], inner)  # a row's head and mask are found by its place among so many
    step = rows if save else rows_at_once(rows, 4 * n_pad * m_pad, group)
    scored, lse = (query.new_empty(size, dtype=torch.float32) for size in ((step, n_pad, m_pad), (step, n_pad)))
    for first in range(0, rows, step):
        part = slice(first, first + step)
        some = [None if x is None else x[part] for x in (lengths, causal, centre)]
        rows_mask = None if mask is None else mask[first // inner : (first + step) // inner]
        limits = (some[0], some[1], start, some[2], middle, radius, rows_mask)
        partial = score(query[part], keys[part], vector, scored, limits, temperature)
        weigh(scored, partial, values[part], context[part], lse, limits[:-1])
    if save:
        return context, scored, lse
    return context, none, none.clone()


additive = torch.library.custom_op("regard::additive_attention", mutates_args=())(compute)


@additive.register_fake
def _(query, keys, values, vector, lengths, causal, start, centre, middle, radius, mask, temperature, save):  # type: ignore[no-untyped-def]
    rows, n, m = query.shape[0], query.shape[1], keys.shape[1]
    context = values.new_empty(rows, n, values.shape[-1])
    if save and context.numel() and m:
        shapes: tuple[tuple[int, ...], ...] = ((rows, padded(n), padded(m)), (rows, padded(n)))
    else:
        shapes = ((0,), (0,))
    return context, *(query.new_empty(shape, dtype=torch.float32) for shape in shapes)


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
    mask: Tensor | None,
    temperature: float,
    context: Tensor,
    scored: Tensor,
    lse: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of query, keys, values and vector."""
    limits = (lengths, causal, start, centre, middle, radius, mask)
    if scored.numel() == 0:
        return torch.zeros_like(query), torch.zeros_like(keys), torch.zeros_like(values), torch.zeros_like(vector)
    g, turned, d_values = weights_backward(grad, values, context, scored, lse, limits[:-1], temperature)
    d_query, d_keys, d_vector = scores_backward(g, turned, query, keys, vector, limits[:-1])
    return d_query, d_keys, d_values, d_vector


additive_backward = torch.library.custom_op("regard::additive_attention_backward", mutates_args=())(compute_backward)


@additive_backward.register_fake
def _(grad, query, keys, values, vector, *others):  # type: ignore[no-untyped-def]
    return tuple(x.new_empty(x.shape) for x in (query, keys, values, vector))


def keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    query, keys, values, vector, lengths, causal, start, centre, middle, radius, mask, temperature, _ = inputs
    context, scored, lse = output
    ctx.save_for_backward(query, keys, values, vector, lengths, causal, centre, mask, context, scored, lse)
    ctx.numbers = start, middle, radius, temperature
    ctx.set_materialize_grads(False)


def gradients(ctx, grad, backward):  # type: ignore[no-untyped-def]
    query, keys, values, vector, lengths, causal, centre, mask, context, scored, lse = ctx.saved_tensors
    start, middle, radius, temperature = ctx.numbers
    if grad is None:
        return (None,) * 13
    grads = backward(
        grad, query, keys, values, vector, lengths, causal, start, centre, middle, radius, mask, temperature,
        context, scored, lse,
    )  # fmt: skip
    return *grads, *(None,) * 9


def differentiate(ctx, grad, *unused):  # type: ignore[no-untyped-def]
    return gradients(ctx, grad, additive_backward)


additive.register_autograd(differentiate, setup_context=keep)


Eager = eager_function(compute, keep, partial(gradients, backward=compute_backward))


# ---- launches


def padded(size: int) -> int:
    """Round a size up to a whole number of blocks."""
    return -(-size // BLOCK) * BLOCK


def rows_at_once(rows: int, size: int, group: int) -> int:
    """Choose how many rows have room for their scores, of `size` bytes each: whole groups, one at least."""
    return min(rows, max(1, ROOM // (size * group)) * group)


def structured_limits(lengths, causal, start, centre, middle, radius):  # type: ignore[no-untyped-def]
    """Return the structured limits as a kernel takes them; limits that are not given are not compiled in."""
    return {
        "lengths": lengths,
        "causal": start if causal is None else causal,
        "centre": middle if centre is None else centre,
        "radius": radius,
        "LENGTHS": lengths is not None,
        "CAUSAL": 2 if causal is not None else 0 if start == NONE else 1,
        "WINDOW": 0 if radius < 0 else 1 if centre is None else 2,
    }


def all_limits(lengths, causal, start, centre, middle, radius, mask):  # type: ignore[no-untyped-def]
    """Return all limits as a kernel takes them."""
    strides = (0, 0, 0, 0) if mask is None else mask.stride()
    names = ("mask_outer", "mask_inner", "mask_i", "mask_j")
    return {
        **structured_limits(lengths, causal, start, centre, middle, radius),
        "mask": None if mask is None else mask.view(torch.uint8) if mask.dtype == torch.bool else mask,
        **dict(zip(names, strides, strict=True)),
        "inner": 1 if mask is None else mask.shape[1],
        "MASK": mask is not None,
    }


def exponentials(x: Tensor, inverse: Tensor | None, heads: int, major: bool) -> tuple[Tensor, Tensor]:
    """Compute e^{2x}, hidden units first or last, two to 64 bits; and the largest 2x of each block."""
    from regard.kernels.additive import forward_kernels as forward

    rows, n, h = x.shape
    n_pad, h_pad = padded(n), -(-h // 4) * 4
    shape = (rows, h_pad // 2, n_pad) if major else (rows, n_pad, h_pad // 2)
    out = x.new_empty(shape, dtype=torch.int64)
    most = x.new_empty((rows, n_pad // BLOCK, h_pad), dtype=torch.float32)
    forward.exponentials[(n_pad // BLOCK, -(-h_pad // 64), rows)](
        x, inverse, out if major else out.view(torch.float32), most, n, n_pad, h, h_pad, heads, *x.stride(),
        SCALED=inverse is not None, MAJOR=major, BN=BLOCK, BP=32, num_warps=4,
    )  # fmt: skip
    return out, most


def score(query, keys, vector, out, limits, temperature):  # type: ignore[no-untyped-def]
    """Write all scores within the limits into `out` [r n m], padded, and each tile's part of the log-sum-exp."""
    from regard.kernels.additive import forward_kernels as forward

    (rows, n, h), m, heads = query.shape, keys.shape[1], vector.shape[0]
    n_pad, m_pad, h_pad = padded(n), padded(m), -(-h // 4) * 4
    inverse, cost = (query.new_empty((heads, h_pad), dtype=torch.float32) for _ in range(2))
    top = query.new_empty(heads, dtype=torch.float32)
    block = 1 << (h_pad - 1).bit_length()
    forward.vectors[(heads,)](vector, inverse, cost, top, h, h_pad, vector.stride(0), BLOCK=block)
    a, most_q = exponentials(query, inverse, heads, True)
    b, most_k = exponentials(keys, None, heads, True)
    grid = m_pad // (TILE["KR"] * TILE["KT"]), n_pad // (TILE["QR"] * TILE["QT"]), rows
    again = torch.empty(grid, dtype=torch.int32, device=query.device)
    partial = [out.new_empty((rows, grid[0], n_pad)) for _ in range(2)]
    for rescue in (False, True):
        forward.scores[grid](
            a, b, inverse.view(torch.int64), cost, top, most_q, most_k, out, *partial, again, query, keys, vector,
            n, m, h, n_pad, m_pad, h_pad, heads, *query.stride(), *keys.stride(), vector.stride(0), temperature,
            **all_limits(*limits), **TILE, HB=min(256, block), BLOCK=BLOCK, RESCUE=rescue,
        )  # fmt: skip
    return partial


def weigh(scored, partial, values, out, lse, limits) -> None:  # type: ignore[no-untyped-def]
    """Compute contexts and the log-sum-exp of every query's scores."""
    from regard.kernels.additive import forward_kernels as forward

    (rows, n, dv), m = out.shape, values.shape[1]
    n_pad, m_pad = padded(n), padded(m)
    wide = min(SUM["BV"], max(16, 1 << (dv - 1).bit_length()))
    forward.sum_values[(n_pad // BLOCK, -(-dv // wide), rows)](
        scored, *partial, values, out, lse, n, m, dv, n_pad, m_pad, *values.stride(),
        **structured_limits(*limits), BN=BLOCK, BM=BLOCK, **{**SUM, "BV": wide},
    )  # fmt: skip


def weights_backward(grad, values, context, scored, lse, limits, temperature):  # type: ignore[no-untyped-def]
    """Compute the gradient of the scores, [r n m] and [r m n], and of the values."""
    from regard.kernels.additive import backward_kernels as backward

    (rows, n, dv), m = context.shape, values.shape[1]
    n_pad, m_pad = padded(n), padded(m)
    delta = lse.new_empty(lse.shape)
    wide = min(256, max(16, 1 << (dv - 1).bit_length()))
    backward.inner_products[(n_pad // 16, rows)](
        grad, context, delta, n, dv, n_pad, *grad.stride(), BN=16, BV=wide, num_warps=4
    )
    g, turned = lse.new_empty(rows, n_pad, m_pad), lse.new_empty(rows, m_pad, n_pad)
    d_values = values.new_empty(values.shape)
    limited = structured_limits(*limits)
    backward.score_gradients[(m_pad // BLOCK, n_pad // BLOCK, rows)](
        scored, lse, delta, values, grad, g, turned, n, m, dv, n_pad, m_pad,
        *values.stride(), *grad.stride(), temperature,
        **limited, BN=BLOCK, BM=BLOCK, **{**GRADIENT, "BV": min(GRADIENT["BV"], wide)},
    )  # fmt: skip
    wide = min(SUM["BV"], wide)
    backward.value_gradients[(m_pad // BLOCK, -(-dv // wide), rows)](
        scored, lse, grad, d_values, n, m, dv, n_pad, m_pad, *grad.stride(),
        **limited, BN=BLOCK, BM=BLOCK, **{**SUM, "BV": wide},
    )  # fmt: skip
    return g, turned, d_values


def scores_backward(g, turned, query, keys, vector, limits):  # type: ignore[no-untyped-def]
    """Compute the gradients of query, keys and vector from the scores'."""
    from regard.kernels.additive import backward_kernels as backward

    rows, (heads, h) = query.shape[0], vector.shape
    h_pad = -(-h // 4) * 4
    sides = [(x, *exponentials(x, None, heads, False)) for x in (query, keys)]
    grads = []
    own, wide = SWEEP["OR"] * SWEEP["OT"], 2 * SWEEP["DR"] * SWEEP["DT"]
    for turn, gradient in enumerate((g, turned)):
        (x, e_x, most_x), (y, e_y, most_y) = sides if turn == 0 else reversed(sides)
        n, m, n_pad, m_pad = x.shape[1], y.shape[1], e_x.shape[1], e_y.shape[1]
        out = x.new_empty(x.shape)
        grid = (n_pad // own, -(-h_pad // wide), rows)
        part = g.new_empty((rows, grid[0], h_pad)) if turn else None
        again = torch.empty((rows, *grid[1::-1]), dtype=torch.int32, device=x.device)
        for rescue in (False, True):
            backward.sweep[grid](
                e_x, e_y, most_x, most_y, gradient.view(torch.int64), out, part, again, x, y, vector,
                n, m, h, n_pad, m_pad, h_pad, heads, *x.stride(), *y.stride(), vector.stride(0),
                **structured_limits(*limits), KEYS=turn == 1, VECTOR=turn == 1, BLOCK=BLOCK, **SWEEP, RESCUE=rescue,
            )  # fmt: skip
        grads.append(out)
    assert part is not None
    d_vector = part[..., :h].unflatten(0, (-1, heads)).sum((0, 2)).to(vector.dtype)
    return grads[0], grads[1], d_vector
