"""The specification: attention written as its definition says. Everything faster must agree with this file."""

# b batch · r rows: all leading dimensions as one · n queries · m keys · d width · h hidden · dv value width
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.span_limits import SpanLimits, Window


def widen(x: Tensor) -> Tensor:
    """Convert half precision to float32, where a score above 65,504 stays finite; leave wider numbers as they are."""
    return x.float() if x.element_size() < 4 else x


def matmul_wide(a: Tensor, b: Tensor) -> Tensor:
    """Compute a @ b in float32 or wider, under autocast too."""
    if torch.is_autocast_enabled(a.device.type):
        with torch.autocast(a.device.type, enabled=False):
            return widen(a) @ widen(b)
    return (a if a.element_size() >= 4 else a.float()) @ (b if b.element_size() >= 4 else b.float())


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


def bilinear_scores(query: Tensor, keys: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """Compute scale · q·k: [*b n d] and [*b m d] -> [*b n m], in float32 where the inputs are in half precision."""
    query = query if query.element_size() >= 4 else query.float()
    query = query if scale == 1.0 else query * scale
    if keys.element_size() >= 4 and not torch.is_autocast_enabled(keys.device.type):
        return query @ keys.mT
    return matmul_wide(query, keys.mT)


def additive_scores(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """Compute v·tanh(q + k): [*b n h], [*b m h] and [h] or [heads h] -> [*b n m].

    In float32 where the inputs are in half precision. The [*b n m h] between is held in memory.
    """
    hidden = torch.tanh(widen(query).unsqueeze(-2) + widen(keys).unsqueeze(-3))
    vector = vector.to(hidden.dtype)
    if vector.ndim == 1:
        return matmul_wide(hidden, vector)
    return matmul_wide(hidden, vector[:, None, :, None]).squeeze(-1)


def attend_window(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    window: Window,
    *,
    scale: float = 1.0,
    vector: Tensor | None = None,
    temperature: float = 1.0,
    lengths: Tensor | None = None,
    causal: int | Tensor | None = None,
) -> Tensor:
    r"""Attend: [r n d], [r m d], [r m dv] -> [r n dv]; scores are scale · q·k, or with a vector v [d] v·tanh(q + k).

    Local attention (Luong et al. 2015, arXiv:1508.04025, section 3.2), one query after the other. The softmax runs over
    the keys j with $|j - p_i| \le D$ alone; the Gaussian $\exp(-(j - p_i)^2 / 2\sigma^2)$ multiplies the weights after
    it, without renormalising. A query whose window has no key gets zeros. `attend` says the same for windows beside any
    other span, by a mask and a gate over all keys.
    """
    (rows, n, _), m = query.shape, keys.shape[1]
    centres = window.centres(n, query.device).expand(rows, n)
    contexts = []
    for row in range(rows):
        length = m if lengths is None else int(lengths[row])
        for i in range(n):
            centre = centres[row, i]
            last = length - 1
            if causal is not None:
                last = min(last, i + int(causal if isinstance(causal, int) else causal[row]))
            inside = [j for j in range(last + 1) if abs(j - float(centre.detach())) <= window.radius]
            near = keys[row, inside]
            scores = scale * near @ query[row, i] if vector is None else torch.tanh(near + query[row, i]) @ vector
            weights = torch.softmax(scores / temperature, 0)
            if window.sigma is not None:
                distance = torch.tensor(inside, device=query.device) - centre
                weights = weights * torch.exp(-distance.square() / (2 * window.sigma**2))
            contexts.append(weights @ values[row, inside])
    return torch.stack(contexts).view(rows, n, -1)
