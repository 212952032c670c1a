"""The specification of top tokens: forbidden ones get -∞, and the best k of the rest are taken."""

# r rows · v vocabulary · k tokens
import torch
from torch import Tensor


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
