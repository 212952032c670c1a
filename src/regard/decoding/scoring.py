"""Functions that both searches share: padding of token ids, and scores of hypotheses.

In `regard.decoding.sentence_search` the length is a number at each step; in `regard.decoding.device_search`, where each
sentence is at its own step, it is a tensor. The formulas are those of GNMT (Wu et al. 2016, arXiv:1609.08144, equation
14): log P / ((5 + length) / 6)^α, where the length includes END, and the coverage penalty β Σⱼ log min(Σᵢ aᵢⱼ, 1).
"""

# s sentences · r rows of a sentence · k candidates or tokens · m source positions · v vocabulary · t tokens so far
# n rows of token ids · f tokens of all rows
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from regard.data import END, PAD
from regard.errors import NotFiniteError
from regard.models import Documents, Model, Tokens

Row = Sequence[int] | Int[np.ndarray, " _"]
T = TypeVar("T", float, Tensor)
UNSEEN = 1e-6  # the least coverage of a source position; log 0 = -∞ would hide all other positions
FOLDS = 8  # columns that are folded into one, v / FOLDS apart
MANY = 512  # the vocabulary from which folding pays
FEW = 1 << 14  # up to so many scores, a plain maximum is faster than folding
ROWS = 64  # rows whose exponentials fit into a CPU's cache
LOG2E = 1 / math.log(2)


# ---- token ids as the tensors that models read


def tokens_of(rows: Sequence[Sequence[int]], device: torch.device | str = "cpu", fill: int = PAD) -> Tokens:
    """Pad sentences of token ids to a batch, with numpy operations that are fast for thousands of sentences."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    flat = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
    return pad_rows(flat, lengths, device, fill)


def source_of(rows: Sequence[Row], reads: str) -> Tokens | Documents:
    """Convert encoded documents to what a model reads: `Documents`, or `Tokens` with one row per document."""
    return documents_of(rows) if reads == "documents" else pad_rows(*join_rows(rows), "cpu")


def documents_of(rows: Sequence[Row], device: torch.device | str = "cpu") -> Documents:
    """Convert encoded documents, in which END ends each sentence, to `Documents` with one sentence per row."""
    flat, lengths = join_rows(rows)
    ends = np.flatnonzero(flat == END)
    sentences = np.diff(np.searchsorted(ends, np.cumsum(lengths)), prepend=0)
    words = pad_rows(flat[flat != END], np.diff(ends, prepend=-1) - 1, device)
    return Documents(words, torch.from_numpy(sentences).to(device))


def join_rows(rows: Sequence[Row]) -> tuple[Int64[np.ndarray, " f"], Int64[np.ndarray, " n"]]:
    """Concatenate the tokens of all rows; also return the length of each row."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.concatenate([np.zeros(0, np.int64), *(np.asarray(row, np.int64) for row in rows)]), lengths


def pad_rows(
    flat: Int64[np.ndarray, " f"], lengths: Int64[np.ndarray, " n"], device: torch.device | str, fill: int = PAD
) -> Tokens:
    """Pad concatenated rows to a batch."""
    ids = np.full((len(lengths), max(1, int(lengths.max(initial=0)))), fill, np.int64)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = flat
    return Tokens.of(torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device))


# ---- scores


def length_penalty(length: int | Tensor, alpha: float | Tensor) -> Any:
    """Return the divisor for the log-probability of `length` tokens, including END; a tensor must be of floats."""
    return ((5 + length) / 6) ** alpha


def coverage_penalty(coverage: Float[Tensor, "s r m"], lengths: Int[Tensor, " s"]) -> Float[Tensor, "s r"]:
    """Compute Σⱼ log min(cⱼ, 1) over the real source positions, where cⱼ is the attention to position j so far."""
    real = torch.arange(coverage.shape[-1], device=coverage.device) < lengths[:, None, None]
    return coverage.clamp(UNSEEN, 1.0).log().masked_fill(~real, 0.0).sum(-1)


def add_log_probs(
    scores: Float[Tensor, "*s k"], total: Float[Tensor, "*s"], log_sum: Float[Tensor, "*s"]
) -> Float[Tensor, "*s k"]:
    """Return each row's log-probability with one more token, from the tokens' scores and their log Σ exp."""
    return scores + (total - log_sum)[..., None]


def candidate_count(rows: int) -> int:
    """Return the number of candidates per sentence: 2 × rows, since `rows` of them may end; 1 for greedy search."""
    return 1 if rows == 1 else 2 * rows


def is_settled(best: T, last: T, rows: int) -> T | bool:
    """Return whether a sentence with a full pool is done: no unfinished hypothesis scores better than the pool's last.

    Greedy search is done with its first finished hypothesis.
    """
    return True if rows == 1 else best <= last


def check_finite(model: Model, scores: Tensor, *, impossible: bool = True) -> None:
    """Raise an error for NaN and +∞ in scores and, without `impossible`, for -∞, the log of a probability of zero.

    Weights are finite when they are loaded, but computations can overflow. The check waits for the device.
    """
    sound = ~(scores.isnan() | scores.isposinf()) if impossible else scores.isfinite()
    if bool(sound.all()):
        return
    raise NotFiniteError(
        f"{model.origin}: its scores for this input are not finite (NaN or infinity), as its weights are too large to "
        "compute with; take another checkpoint, or train it again with a lower training.rate"
    )


def top_tokens(scores: Float[Tensor, "s r v"], count: int) -> tuple[Float[Tensor, "s r k"], Int[Tensor, "s r k"]]:
    """Return the scores of each row's best `count` tokens and the tokens, in order.

    On a CPU, FOLDS columns are first folded into one by their maximum. The best `count` tokens are in the `count` folds
    with the largest maxima, so that only these are sorted, which is twice as fast as sorting all.
    """
    size = scores.shape[-1]
    width = size // FOLDS
    if count == 1 and scores.numel() <= FEW:
        return scores.max(-1, keepdim=True)
    if scores.device.type != "cpu" or size < MANY or width < count:
        best = scores.topk(count)
        return best.values, best.indices
    folded = scores[..., : width * FOLDS].unflatten(-1, (FOLDS, width))
    top = folded.amax(-2)
    top = top.argmax(-1, keepdim=True) if count == 1 else top.topk(count).indices
    candidates = (top[..., None, :] + torch.arange(0, width * FOLDS, width)[:, None]).flatten(-2)
    if size % FOLDS:
        rest = torch.arange(width * FOLDS, size).expand(*candidates.shape[:-1], -1)
        candidates = torch.cat([candidates, rest], -1)
    values, order = scores.gather(-1, candidates).topk(count)
    return values, candidates.gather(-1, order)


def log_sum(scores: Float[Tensor, "s r v"]) -> Float[Tensor, "s r"]:
    """Compute log Σ exp of each row; on a CPU in blocks of rows with powers of two, which takes half the time."""
    if scores.device.type != "cpu" or scores.shape[-1] < MANY:
        return scores.logsumexp(-1)
    flat = scores.flatten(0, -2)
    most = flat.amax(-1, keepdim=True)
    parts = [(flat, most)] if len(flat) <= ROWS else zip(flat.split(ROWS), most.split(ROWS), strict=True)
    sums = [(rows - top).mul_(LOG2E).exp2_().sum(-1) for rows, top in parts]
    summed = sums[0] if len(sums) == 1 else torch.cat(sums)
    return (summed.log_() + most[:, 0]).view(scores.shape[:-1])
