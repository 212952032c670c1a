"""The top tokens of each row in one kernel: a program reads a row of scores once, and some of its columns again.

The vocabulary is folded into lanes: lane i reads tokens i, i + LANES, i + 2 LANES, …, and keeps their maximum. The best
k tokens are in the k lanes with the largest maxima, so that only those lanes are searched token by token. Each lane
sums exponentials relative to its own maximum so far. Full folds are read without a mask, so that loads are wide if rows
begin at a multiple of 16 elements.
"""

# r rows · v vocabulary · k tokens
import torch
import triton
import triton.language as tl
from torch import Tensor

LANES = 1024  # eight for each thread of four warps: 16 bytes of half precision, one load


def top_tokens(
    scores: Tensor, count: int, never: tuple[int, ...], end: int, early: Tensor, forced: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the top tokens like the reference, in float32; the rows may have any stride."""
    rows, size = scores.shape
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    best = torch.empty(rows, count, dtype=torch.float32, device=scores.device)
    tokens = torch.empty(rows, count, dtype=torch.int64, device=scores.device)
    norm = torch.empty(rows, dtype=torch.float32, device=scores.device)
    first, second = (*never, -1, -1)[:2]
    if rows:
        kernel[(rows,)](
            scores, best, tokens, norm, early, forced, size, scores.stride(0), first, second, end,
            LANES=LANES, FOLDS=triton.next_power_of_2(triton.cdiv(size, LANES)), COUNT=count,
            PLACES=triton.next_power_of_2(count), num_warps=4,
        )  # fmt: skip
    return best, tokens, norm


@triton.jit
def fold_in(x, token, highest, total, top, first, second, end, early, forced):
    """Add a fold of scores to the lanes' values: maxima, sums of exponentials, and maxima of allowed tokens."""
    above = tl.maximum(highest, x)
    shift = tl.where(above == float("-inf"), 0.0, above)
    total = total * tl.exp(highest - shift) + tl.exp(x - shift)
    free = (token != first) & (token != second) & ((token != end) | (early == 0))
    may = ((forced < 0) & free) | (token == forced)
    return above, total, tl.maximum(top, tl.where(may, x, float("-inf")))


@triton.jit
def kernel(
    scores, best, tokens, norm, early_at, forced_at, size, stride, first, second, end,
    LANES: tl.constexpr, FOLDS: tl.constexpr, COUNT: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    scores += row * stride
    early = tl.load(early_at + row).to(tl.int32)
    forced = tl.load(forced_at + row).to(tl.int32)
    lane = tl.arange(0, LANES)
    highest = tl.full((LANES,), float("-inf"), tl.float32)
    top = tl.full((LANES,), float("-inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    whole = size // LANES * LANES
    for begin in range(0, whole, LANES):
        x = tl.load(scores + begin + lane).to(tl.float32)
        highest, total, top = fold_in(x, begin + lane, highest, total, top, first, second, end, early, forced)
    if whole < size:
        x = tl.load(scores + whole + lane, mask=whole + lane < size, other=float("-inf")).to(tl.float32)
        highest, total, top = fold_in(x, whole + lane, highest, total, top, first, second, end, early, forced)
    most = tl.max(highest, 0)
    nothing = most == float("-inf")  # a row of -∞ alone, in which -∞ - -∞ would be NaN
    shift = tl.where(nothing, 0.0, most)
    sum_of = tl.maximum(tl.sum(total * tl.exp(highest - shift), 0), 1.0)  # the largest score alone contributes 1
    tl.store(norm + row, tl.where(nothing, float("-inf"), shift + tl.log(sum_of)))

    place = tl.arange(0, PLACES)
    lanes = tl.full((PLACES,), -1, tl.int32)  # none
    for i in tl.static_range(COUNT):
        value, at = tl.max(top, 0, return_indices=True)
        lanes = tl.where(place == i, tl.where(value > float("-inf"), at, -1), lanes)
        top = tl.where(lane == at, float("-inf"), top)
    fold = tl.arange(0, FOLDS)
    token = fold[None, :] * LANES + lanes[:, None]  # [places folds]
    free = (token != first) & (token != second) & ((token != end) | (early == 0))
    may = (lanes[:, None] >= 0) & (token < size) & (((forced < 0) & free) | (token == forced))
    few = tl.load(scores + token, mask=may, other=float("-inf")).to(tl.float32)
    flat = tl.reshape(few, (PLACES * FOLDS,))
    which = tl.reshape(token, (PLACES * FOLDS,))
    index = tl.arange(0, PLACES * FOLDS)
    for i in tl.static_range(COUNT):
        value, at = tl.max(flat, 0, return_indices=True)
        tl.store(best + row * COUNT + i, value)
        tl.store(tokens + row * COUNT + i, tl.maximum(tl.sum(tl.where(index == at, which, 0), 0), 0).to(tl.int64))
        flat = tl.where(index == at, float("-inf"), flat)
