"""Bilinear softmax attention of a few queries: two products with a softmax between them.

On a CPU the fused kernel gives each row and head to one thread and does not gain from a second one where queries are
few, as the hypotheses of a beam are. The scores of a few queries are small, so that nothing is lost by writing them.
"""

# b batch · n queries · m keys · d width
import torch
from torch import Tensor

from regard.kernels.dot import reference
from regard.kernels.dot.sdpa import merge_mask
from regard.kernels.reference import Call, matmul_wide


def attend(call: Call) -> Tensor:
    """Compute the reference's sum."""
    scores = reference.scores(call.query, call.keys, call.scale / call.temperature)
    mask, some = merge_mask(call, scores.dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    context = matmul_wide(scores.softmax(-1), call.values).to(call.values.dtype)
    return context if some is None else context.masked_fill(~some, 0.0)
