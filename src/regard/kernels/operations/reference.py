r"""The specifications of the operations: each as its definition says. Everything faster must agree with this file.

Dropout, and the residual with its norm, are given which numbers are kept: x ∘ keep / P(keep). The loss is that of
Szegedy et al. 2016, section 7:

$\ell_t = (1 - \varepsilon) \cdot -\log p_t(y_t) + \varepsilon \cdot \frac{1}{v} \sum_k -\log p_t(k)$: as torch's own
`label_smoothing`, the mass ε is spread over all v classes, the right one included.
"""

# b, r rows · t tokens · e width in · d width, or that out · c columns · v indices, classes or vocabulary · k tokens
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.reference import widen


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute y_i = Σ_j W_ij x_j + b_i: [*b e], [d e] and [d] -> [*b d]."""
    product = (x.unsqueeze(-2) * weight).sum(-1)
    return product if bias is None else product + bias


def column_sums(x: Tensor) -> Tensor:
    """Compute the gradient of a bias: [t c] -> [c], the sum of the rows, in float32 or wider."""
    return widen(x).sum(0)


def row_sums(x: Tensor, ids: Tensor, count: int, factor: float = 1.0) -> Tensor:
    """Compute an embedding's gradient, the sum of the rows with each index: [t c], [t] -> [v c], float32 or wider."""
    return torch.stack([widen(x[ids == index]).sum(0) for index in range(count)]) * factor


def dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Set some numbers of x to zero and scale the others, so that the expectation stays the same."""
    return torch.where(keep, x / keep_probability, 0.0)


def dropout_add(x: Tensor, y: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Compute a residual, x + dropout(y)."""
    return x + dropout(y, keep, keep_probability)


def relu_dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Compute dropout(relu(x))."""
    return dropout(x.relu(), keep, keep_probability)


def gelu_dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Compute dropout(x · Φ(x)), Φ the normal distribution (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    return dropout(x * 0.5 * (1 + torch.erf(x * 0.5**0.5)), keep, keep_probability)


def silu_dropout(x: Tensor, keep: Tensor, keep_probability: float) -> Tensor:
    """Compute dropout(x · σ(x)), also called swish (the same paper; Ramachandran et al. 2017, arXiv:1710.05941)."""
    return dropout(x * torch.sigmoid(x), keep, keep_probability)


def residual(
    x: Tensor,
    y: Tensor,
    bias: Tensor | None,
    keep: Tensor | None,
    keep_probability: float,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor | None]:
    """Compute the sum [t d] in x's dtype, and its norm (Ba et al. 2016, arXiv:1607.06450) where that has a weight."""
    y = y if bias is None else y + bias
    y = y if keep is None else dropout(y, keep, keep_probability)
    together = (x + y).to(x.dtype)
    if norm_weight is None:
        return together, None
    wide = torch.promote_types(x.dtype, norm_weight.dtype)
    return together, F.layer_norm(together.to(wide), together.shape[-1:], norm_weight, norm_bias, eps)


def top_tokens(
    scores: Tensor, count: int, never: tuple[int, ...], end: int, early: Tensor, forced: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Find top tokens from [r v], k, forbidden tokens, END's number, [r] whether END is too early, [r] a token or -1.

    -> the scores of the best tokens in order [r k], the tokens [r k], and log Σ exp of all scores [r]. A row that is
    forced has one token, whatever is forbidden otherwise. Where fewer than k may come, the rest is -∞.
    """
    wide = scores if scores.dtype == torch.float64 else scores.float()
    token = torch.arange(scores.shape[-1], device=scores.device)
    free = torch.ones_like(token, dtype=torch.bool)
    for number in never:
        free &= token != number
    allowed = free & ~((token == end) & early[:, None])
    allowed = torch.where(forced[:, None] < 0, allowed, token == forced[:, None])
    best = wide.masked_fill(~allowed, -torch.inf).topk(count)
    return best.values, best.indices, wide.logsumexp(-1)


IGNORED = -100


def projection_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Sum smoothed losses, and plain ones, which carry no gradient: [t d], [v d], [v], [t] -> two numbers.

    Targets below zero count nothing.
    """
    targets = targets.where(targets >= 0, IGNORED)
    logits = F.linear(hidden, weight, bias)
    logits = logits if logits.element_size() > 2 else logits.float()
    options: dict[str, Any] = {"reduction": "sum", "ignore_index": IGNORED}
    total = F.cross_entropy(logits, targets, label_smoothing=smoothing, **options)
    return total, F.cross_entropy(logits.detach(), targets, **options)
