"""Local-p attention in Triton: softmax over a window around a predicted centre, then the Gaussian (Luong et al. 2015).

Only the keys of a window are touched, forward and backward. A key's gradient is summed by a program that owns the key
and asks which queries reach it, in a fixed order: the same bits every time.
"""

# b batch · r rows: all leading dimensions as one · a heads · n queries · m keys · d width · dv value width
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from regard.kernels.reference import Call
from regard.kernels.span_limits import broadcast
from regard.kernels.triton import eager_function

RADIUS = 126  # a window must fit one program
NONE = -(1 << 62)


def attend(call: Call) -> Tensor:
    """The reference's sum for a bilinear or an additive score and softmax, under lengths and causality."""
    limits, window = call.limits, call.limits.window
    assert window is not None
    assert window.centre is not None
    batch = broadcast(call.query.shape[:-2], call.keys.shape[:-2], call.values.shape[:-2])
    rows = math.prod(batch)

    def flat(x: Tensor) -> Tensor:
        return x.expand(*batch, *x.shape[-2:]).reshape(rows, *x.shape[-2:])

    def each(value: Tensor) -> Tensor:  # side by side, as a kernel reads them: a reshape alone may stay a broadcast
        return value.expand(batch).reshape(rows).contiguous()

    tensors = (call.query, call.keys, call.values, window.centre, call.vector)
    save = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    serve: Callable[..., tuple[Tensor, ...]] = compute
    if torch.compiler.is_compiling():
        serve = predicted
    elif save:
        serve = Eager.apply
    context = serve(
        *(flat(x) for x in tensors[:3]),
        window.centre.float().expand(*batch, limits.queries).reshape(rows, limits.queries),
        call.vector if call.vector is None or call.vector.ndim == 2 else call.vector[None],
        None if limits.lengths is None else each(limits.lengths),
        each(limits.causal) if isinstance(limits.causal, Tensor) else None,
        limits.causal if isinstance(limits.causal, int) else NONE,
        window.radius,
        0.0 if window.sigma is None else 0.5 / window.sigma**2,
        (1.0 if call.vector is not None else call.scale) / call.temperature,
        save,
    )[0]
    return context.reshape(*batch, *context.shape[-2:])


def compute(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    centre: Tensor,
    vector: Tensor | None,
    lengths: Tensor | None,
    causal: Tensor | None,
    start: int,
    radius: int,
    spread: float,
    scale: float,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """[r n d], [r m d], [r m dv], centres [r n] and perhaps [a d] -> contexts [r n dv]; what backward needs, if kept.

    That is the softmax over each window, [r n w], and where the window begins and how many keys it has, [r n 2].
    """
    from regard.kernels.window import triton_kernels

    (rows, n, d), (m, dv) = query.shape, values.shape[-2:]
    context = values.new_empty(rows, n, dv)
    plain, bounds = saved(query, radius, save)
    if context.numel() == 0 or m == 0:
        return context.zero_(), plain.zero_(), bounds.zero_()
    triton_kernels.attend[(n, rows)](
        query, keys, values, query if vector is None else vector, centre.contiguous(), lengths,
        start if causal is None else causal, context, plain, bounds,
        n, m, d, dv, 1 if vector is None else vector.shape[0], wide(radius), radius, scale, spread,
        *query.stride(), *keys.stride(), *values.stride(), 0 if vector is None else vector.stride(0),
        LENGTHS=lengths is not None, CAUSAL=2 if causal is not None else 0 if start == NONE else 1,
        GAUSSIAN=spread > 0, ADDITIVE=vector is not None, SAVE=save, **blocks(radius), num_warps=4,
    )  # fmt: skip
    return context, plain, bounds


def saved(query: Tensor, radius: int, save: bool) -> tuple[Tensor, Tensor]:
    rows, n = query.shape[:2] if save else (0, 0)
    plain = query.new_empty((rows, n, wide(radius)), dtype=torch.float32)
    return plain, query.new_empty((rows, n, 2), dtype=torch.int32)


predicted = torch.library.custom_op("regard::predicted_window", mutates_args=())(compute)


@predicted.register_fake
def _(query, keys, values, centre, vector, lengths, causal, start, radius, spread, scale, save):  # type: ignore[no-untyped-def]
    return values.new_empty(*query.shape[:2], values.shape[-1]), *saved(query, radius, save)


def compute_backward(
    grad: Tensor,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    centre: Tensor,
    vector: Tensor | None,
    radius: int,
    spread: float,
    scale: float,
    plain: Tensor,
    bounds: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, keys, values, centre and vector (empty without one)."""
    from regard.kernels.window import triton_kernels

    (rows, n, d), (m, dv), width = query.shape, values.shape[-2:], wide(radius)
    if plain.numel() == 0 or values.numel() == 0:
        none = query.new_zeros(0) if vector is None else torch.zeros_like(vector)
        zeros = torch.zeros_like
        return zeros(query), zeros(keys), zeros(values), zeros(centre), none
    d_query, d_keys, d_values, d_centre = (x.new_empty(x.shape) for x in (query, keys, values, centre))
    ds, weights = torch.empty_like(plain), torch.empty_like(plain)
    heads, stride = (1, 0) if vector is None else (vector.shape[0], vector.stride(0))
    triton_kernels.query_gradients[(n, rows)](
        query, keys, values, query if vector is None else vector, centre.contiguous(), grad, plain, bounds,
        d_query, d_centre, ds, weights,
        n, d, dv, heads, width, scale, spread,
        *query.stride(), *keys.stride(), *values.stride(), *grad.stride(), stride,
        GAUSSIAN=spread > 0, ADDITIVE=vector is not None, **blocks(radius), num_warps=4,
    )  # fmt: skip
    grid = -(-m // KEYS)

    def summed(what: Tensor, x: Tensor, out: Tensor) -> None:
        piece = min(128, max(16, 1 << (x.shape[-1] - 1).bit_length()))
        triton_kernels.key_sums[(grid, -(-x.shape[-1] // piece), rows)](
            what, bounds, x, out, n, m, x.shape[-1], width, *x.stride(),
            BK=KEYS, BN=32, BD=piece, num_warps=4,
        )  # fmt: skip

    summed(weights, grad, d_values)
    if vector is None:
        summed(ds, query, d_keys)
        return d_query, d_keys, d_values, d_centre, query.new_empty(0)
    part = plain.new_empty((rows, grid, d))
    piece = min(128, max(16, 1 << (d - 1).bit_length()))
    triton_kernels.additive_key_gradients[(grid, -(-d // piece), rows)](
        ds, bounds, query, keys, vector, d_keys, part, n, m, d, heads, width, *query.stride(), *keys.stride(), stride,
        BK=KEYS, BN=32, BD=piece, num_warps=4,
    )  # fmt: skip
    return d_query, d_keys, d_values, d_centre, part.unflatten(0, (-1, heads)).sum((0, 2)).to(vector.dtype)


KEYS = 16  # of a program that owns keys


def wide(radius: int) -> int:
    """Count the places of a window: its keys, and one at either end that may turn out to be outside."""
    return 2 * radius + 3


def blocks(radius: int) -> dict[str, int]:
    """Choose how many keys and how many numbers of each a program holds."""
    window = max(16, 1 << (wide(radius) - 1).bit_length())
    return {"BW": window, "BD": max(16, min(128, 4096 // window))}


predicted_backward = torch.library.custom_op("regard::predicted_window_backward", mutates_args=())(compute_backward)


@predicted_backward.register_fake
def _(grad, query, keys, values, centre, vector, *others):  # type: ignore[no-untyped-def]
    grads = (x.new_empty(x.shape) for x in (query, keys, values, centre))
    return *grads, query.new_empty(0) if vector is None else vector.new_empty(vector.shape)


def keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    query, keys, values, centre, vector, *_, radius, spread, scale, _ = inputs
    ctx.save_for_backward(query, keys, values, centre, vector, *output[1:])
    ctx.numbers = radius, spread, scale
    ctx.set_materialize_grads(False)


def gradients(ctx, grad, backward):  # type: ignore[no-untyped-def]
    if grad is None:
        return (None,) * 12
    *inputs, plain, bounds = ctx.saved_tensors
    grads = list(backward(grad, *inputs, *ctx.numbers, plain, bounds))
    if inputs[-1] is None:
        grads[-1] = None
    return *grads, *(None,) * 7


def differentiate(ctx, grad, *unused):  # type: ignore[no-untyped-def]
    return gradients(ctx, grad, predicted_backward)


predicted.register_autograd(differentiate, setup_context=keep)


Eager = eager_function(compute, keep, partial(gradients, backward=compute_backward))
