"""The likeliest of many tokens, and the sum that makes scores probabilities: the two passes over a whole vocabulary."""

# s sentences · r rows of a sentence · v vocabulary · k tokens
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["log_sum", "top_tokens"]

FOLDS = 8  # scores that are compared at once, from columns v / FOLDS apart
MANY = 512  # from here on folding pays
ROWS = 64  # whose exponentials fit into a processor's cache
LOG2E = 1 / math.log(2)


def top_tokens(scores: Float[Tensor, "s r v"], count: int) -> tuple[Float[Tensor, "s r k"], Int[Tensor, "s r k"]]:
    """The best tokens of each row and their scores, in order.

    On a CPU the vocabulary is folded first: of every FOLDS columns the maximum. The best `count` tokens are in the
    `count` folds with the largest maxima, so that only those have to be sorted; twice as fast as sorting all.
    """
    size = scores.shape[-1]
    width = size // FOLDS
    if scores.device.type != "cpu" or size < MANY or width < count:
        best = scores.topk(count)
        return best.values, best.indices
    folded = scores[..., : width * FOLDS].unflatten(-1, (FOLDS, width))
    top = folded.amax(-2)
    top = top.argmax(-1, keepdim=True) if count == 1 else top.topk(count).indices
    places = (top[..., None, :] + torch.arange(0, width * FOLDS, width)[:, None]).flatten(-2)
    if size % FOLDS:
        rest = torch.arange(width * FOLDS, size).expand(*places.shape[:-1], -1)
        places = torch.cat([places, rest], -1)
    values, order = scores.gather(-1, places).topk(count)
    return values, places.gather(-1, order)


def log_sum(scores: Float[Tensor, "s r v"]) -> Float[Tensor, "s r"]:
    """log Σ exp of each row. On a CPU some rows at a time, by powers of two, which are half as dear."""
    if scores.device.type != "cpu" or scores.shape[-1] < MANY:
        return scores.logsumexp(-1)
    flat = scores.flatten(0, -2)
    most = flat.amax(-1, keepdim=True)
    sums = [
        (rows - top).mul_(LOG2E).exp2_().sum(-1) for rows, top in zip(flat.split(ROWS), most.split(ROWS), strict=True)
    ]
    return (torch.cat(sums).log_() + most[:, 0]).view(scores.shape[:-1])
