"""The top tokens of each row: a Triton kernel on CUDA, the plain expression elsewhere."""

# r rows · v vocabulary · k tokens
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.kernels import reference
from regard.kernels.planning import has_kernel

MAX_TOKENS = 32  # most tokens that the kernel supports


def top_tokens(
    scores: Float[Tensor, "r v"],
    count: int,
    *,
    never: tuple[int, ...],
    end: int,
    early: Bool[Tensor, " r"],
    forced: Int[Tensor, " r"],
) -> tuple[Float[Tensor, "r k"], Int[Tensor, "r k"], Float[Tensor, " r"]]:
    """Return the scores and ids of each row's best `count` tokens, in order, and log Σ exp of all its scores.

    Scores are in float32 or wider. Tokens of `never` are forbidden, `end` too if it is too `early`; a `forced` token
    (-1: none) is the only one allowed.
    """
    if count <= min(MAX_TOKENS, scores.shape[-1]) and has_kernel(scores.device.type, scores.dtype):
        from regard.kernels.triton import top_tokens as triton

        with torch.cuda.device_of(scores):  # which may differ from the current one
            return triton.top_tokens(scores, count, never, end, early, forced)
    return reference.top_tokens(scores, count, never, end, early, forced)
