"""The specification: attention written as its definition says. Everything faster must agree with this file."""

# b batch · n queries · m keys · dv value width
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.span_limits import SpanLimits


def widen(x: Tensor) -> Tensor:
    """Convert half precision to float32, where a score above 65,504 stays finite; leave wider numbers as they are."""
    return x.float() if x.element_size() < 4 else x


def matmul_wide(a: Tensor, b: Tensor) -> Tensor:
    """Compute a @ b in float32 or wider, under autocast too."""
    kind = a.device.type
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return widen(a) @ widen(b)
    return widen(a) @ widen(b)


@dataclass(frozen=True)
class Call:
    """One attention call, after the score has transformed its query and keys."""

    query: Tensor  # [*b n d]
    keys: Tensor  # [*b m d]
    values: Tensor  # [*b m dv]
    limits: SpanLimits
    compare: Callable[[Tensor, Tensor], Tensor]  # scores [*b n m] of query and keys
    weigh: Callable[[Tensor, Tensor | None], Tensor]  # weights [*b n m] of scores under a mask
    score: str = "other"  # what `compare` is, where kernels may compute it themselves: "bilinear" or "additive"
    weighting: str = "other"  # what `weigh` is: "softmax" where kernels may
    scale: float = 1.0  # bilinear scores are scale · q·k
    vector: Tensor | None = None  # additive scores are vector · tanh(q + k); [h] or [heads h]
    temperature: float = 1.0  # of a softmax that kernels know
    dropout: float = 0.0


def softmax(scores: Tensor, mask: Tensor | None, temperature: float | Tensor = 1.0) -> Tensor:
    """Compute the softmax of e / T over the keys that the mask allows; a query with none gets zeros, finite gradients.

    Half precision is weighed in float32: a score of 1e4 is coarse in bfloat16, and the sum of many small weights too.
    """
    dtype, scores = scores.dtype, widen(scores)
    if temperature != 1.0:
        scores = scores / temperature
    if mask is None:
        return torch.softmax(scores, dim=-1).to(dtype)
    # The lowest finite number, not -inf: a row without keys is then uniform, not NaN, and is zeroed below.
    weights = torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)
    return weights.masked_fill(~mask, 0.0).to(dtype)


def attend(call: Call) -> Tensor:
    """Compute Σ_j a_ij v_j with a = weigh(e), e = compare(q, k) + bias, and a gate after the weighting.

    Softmax divides e by its temperature, the bias included. Scores, weights and the sum are in float32 where the
    inputs are in half precision; the context is rounded once.
    """
    scores = call.compare(call.query, call.keys)
    return sum_values(scores, call)


def sum_values(scores: Tensor, call: Call) -> Tensor:
    """Compute contexts from scores: bias, weighting, gate, dropout, sum."""
    gate = call.limits.gate()
    weights = call.weigh(add_bias(scores, call.limits), call.limits.mask())
    if gate is not None:
        weights = weights * gate.to(weights.dtype)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    return matmul_wide(weights, call.values).to(call.values.dtype)


def add_bias(scores: Tensor, limits: SpanLimits) -> Tensor:
    """Add all biases of the spans to the scores, in float32 or wider, as a weighting takes them."""
    bias, scores = limits.bias(), widen(scores)
    return scores if bias is None else scores + bias.to(scores.dtype)
