"""Dispatch of the top tokens: a kernel on CUDA, where Triton is there, and the plain expression elsewhere."""

# r rows · v vocabulary · k tokens
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.kernels import reference
from regard.kernels.table import COMPILING, NEEDS_TRITON, SINGLE_OR_HALF, Condition, Request, Row, Table, compiling

MAX_TOKENS = 32  # tokens that the kernel finds

ENOUGH = Condition(lambda request: request.sizes["tokens"] <= request.sizes["vocabulary"], "more tokens than there are")
TOP_TOKENS = Table(
    "top tokens",
    Row(
        name="triton",
        devices=("cuda",),
        dtypes=SINGLE_OR_HALF,
        features=frozenset({COMPILING}),
        most={"tokens": MAX_TOKENS},
        conditions=(ENOUGH, NEEDS_TRITON),
    ),
    Row(name="torch", features=None),
)


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
    if TOP_TOKENS.choose(describe(scores, count)).name == "triton":
        from regard.kernels.triton import top_tokens as triton

        with torch.cuda.device_of(scores):  # which need not be the current one
            return triton.top_tokens(scores, count, never, end, early, forced)
    return reference.top_tokens(scores, count, never, end, early, forced)


def describe(scores: Tensor, count: int) -> Request:
    """Put a call into plain data."""
    sizes = {"tokens": count, "vocabulary": scores.shape[-1]}
    return Request(scores.device.type, (scores.dtype,), compiling(), sizes)
