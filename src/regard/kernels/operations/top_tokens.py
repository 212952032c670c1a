"""Dispatch of the top tokens: a kernel on CUDA, where Triton is there, and the plain expression elsewhere."""

# r rows · v vocabulary · k tokens
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.kernels import reference
from regard.kernels.table import has_kernel

MAX_TOKENS = 32  # tokens that the kernel finds


def top_tokens(
    scores: Float[Tensor, "r v"],
    count: int,
    *,
    never: tuple[int, ...],
    end: int,
    early: Bool[Tensor, " r"],
    forced: Int[Tensor, " r"],
) -> tuple[Float[Tensor, "r k"], Int[Tensor, "r k"], Float[Tensor, " r"]]:
    """The best `count` tokens of each row in order, their scores, and log Σ exp of all scores, in float32 or wider.

    The tokens of `never` may not come, `end` not where it is too `early`; a `forced` token (-1: none) is the only one.
    """
    if count <= min(MAX_TOKENS, scores.shape[-1]) and has_kernel(scores.device.type, scores.dtype):
        from regard.kernels.triton import top_tokens as triton

        with torch.cuda.device_of(scores):  # which need not be the current one
            return triton.top_tokens(scores, count, never, end, early, forced)
    return reference.top_tokens(scores, count, never, end, early, forced)
