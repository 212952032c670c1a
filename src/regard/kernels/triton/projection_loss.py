"""The loss of a chunk and the gradient of its logits in one kernel, between torch's matrix products.

A program processes one token: it reads the token's logits, computes their log-partition, and overwrites them by p - q.
A row that fits into registers is read once; a longer one twice, the second time mostly from the cache. Logits are
stored in the product's dtype, never also in float32. Needs Triton.
"""

# t tokens · c tokens of a chunk · d width · v classes
from typing import Any, no_type_check

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.kernels.triton.arithmetic import column_sums, exp2

BYTES = 1 << 30  # of a chunk's logits, by default
LOG2E = tl.constexpr(1.4426950408889634)
ROW = 1 << 15  # classes that fit the registers of one program
BLOCK = 2048  # classes per iteration in longer rows


class ProjectionLoss(torch.autograd.Function):
    """Losses and gradients in one pass, as on a CPU; products are in `narrow`, sums of gradients in float32."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Run the forward pass on `projection_loss`'s arguments, the need for gradients, and the products' dtype."""
        hidden, weight, bias, targets, smoothing, chunk, training, narrow = inputs
        needs = [training and need for need in ctx.needs_input_grad[:3]]
        tokens, classes = len(hidden), len(weight)
        x, w, targets = hidden.to(narrow), weight.to(narrow), targets.contiguous()
        stride = pad_classes(classes)
        b = None if bias is None else F.pad(bias.to(narrow), (0, stride - classes))
        chunk = tokens_at_once(tokens, stride * x.element_size()) if chunk is None else min(tokens, chunk)
        d_hidden = x.new_empty(x.shape) if needs[0] else None
        d_weight = d_bias = None
        losses = x.new_empty((2, tokens), dtype=torch.float32)
        buffer = x.new_empty((chunk, stride))
        buffer[:, classes:] = 0.0
        with torch.autocast(hidden.device.type, enabled=False):
            for first in range(0, tokens, max(1, chunk)):
                some, last = x[first : first + chunk], min(tokens, first + chunk)
                padded = buffer[: len(some)]
                logits = padded[:, :classes]
                torch.mm(some, w.t(), out=logits)
                differentiate(padded, classes, b, targets[first:last], smoothing, losses[:, first:last], any(needs))
                if d_hidden is not None:
                    torch.mm(logits, w, out=d_hidden[first:last])
                if needs[1]:
                    d_weight = add_product(d_weight, logits.t(), some)
                if needs[2]:
                    sums = column_sums(padded)[:classes]
                    d_bias = sums if d_bias is None else d_bias.add_(sums)
        if needs[1] and d_weight is None:  # no tokens
            d_weight = torch.zeros_like(weight)
        if needs[2] and d_bias is None:
            d_bias = torch.zeros_like(weight[:, 0])
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.dtypes = hidden.dtype, weight.dtype, None if bias is None else bias.dtype
        total, plain = losses.sum(1, dtype=torch.float64).to(torch.float32).unbind()
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (
            None if each is None else (each * grad).to(dtype)
            for each, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return (*scaled, None, None, None, None, None)


def pad_classes(classes: int) -> int:
    """Return the logits' width in memory, a multiple of 64, which aligns rows for wide loads and matrix products."""
    return -(-classes // 64) * 64


def tokens_at_once(tokens: int, row: int) -> int:
    """Return the number of tokens per chunk, at `row` bytes of logits per token."""
    return min(tokens, max(1, BYTES // row))


def cut_classes(classes: int) -> tuple[int, bool, int]:
    """Return the number of classes that a program reads at once, whether these are all, and its number of warps."""
    block = min(ROW, max(16, triton.next_power_of_2(classes)))
    return (block, True, max(1, block // 2048)) if classes <= block else (BLOCK, False, 8)


def add_product(sums: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """Compute sums + a b in float32, from half-precision factors."""
    if a.dtype == torch.float32 or not a.is_cuda:  # a CPU cannot multiply half precision into float32
        a, b = a.float(), b.float()
        return a @ b if sums is None else sums.addmm_(a, b)
    if sums is None:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.addmm(sums, a, b, out_dtype=torch.float32)


def differentiate(
    logits: Tensor,
    classes: int,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    losses: Tensor,
    gradient: bool,
) -> None:
    """Compute these tokens' losses, smoothed and plain; replace their logits, which lack the bias, by p - q.

    Logits and bias may have more columns than there are classes; these are ignored.
    """
    block, whole, warps = cut_classes(classes)
    sweep[(len(logits),)](
        logits, bias, targets, losses, losses.stride(0), smoothing,
        CLASSES=classes, STRIDE=logits.stride(0), BLOCK=block, WHOLE=whole, BIAS=bias is not None,
        SMOOTH=smoothing > 0.0, GRADIENT=gradient, num_warps=warps,
    )  # fmt: skip


@triton.jit(do_not_specialize=["offset"], do_not_specialize_on_alignment=["targets", "losses"])
@no_type_check
def sweep(
    logits, bias, targets, losses, offset, smoothing,
    CLASSES: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr, BIAS: tl.constexpr,
    SMOOTH: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    """Process one token; a target below zero is ignored, and one beyond the classes makes the loss NaN."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row).to(tl.int32)
    start = logits + row * STRIDE
    right = tl.load(start + target, mask=(target >= 0) & (target < CLASSES), other=float("nan")).to(tl.float32)
    if BIAS:
        right += tl.load(bias + target, mask=(target >= 0) & (target < CLASSES), other=0.0).to(tl.float32)
    column = tl.arange(0, BLOCK)
    if WHOLE:
        value = read(start, bias, column, CLASSES, STRIDE, BIAS)
        highest = tl.max(value, 0)
        odds = exp2(value * LOG2E - highest * LOG2E)
        partition = tl.sum(odds, 0)
        if SMOOTH:
            level = tl.sum(tl.where(column < CLASSES, value, 0.0), 0)
    else:
        tops = tl.full((BLOCK,), -1e38, tl.float32)  # of every BLOCK-th class; finite, because -∞ - -∞ would be NaN
        sums = tl.zeros((BLOCK,), tl.float32)
        levels = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, CLASSES, BLOCK):
            value = read(start, bias, first + column, CLASSES, STRIDE, BIAS)
            higher = tl.maximum(tops, value)
            base = higher * LOG2E
            sums = sums * exp2(tops * LOG2E - base) + exp2(value * LOG2E - base)
            tops = higher
            if SMOOTH:
                levels += tl.where(first + column < CLASSES, value, 0.0)
        highest = tl.max(tops, 0)
        partition = tl.sum(sums * exp2((tops - highest) * LOG2E), 0)
        level = tl.sum(levels, 0)
    log_partition = highest + tl.log(partition)
    plain = log_partition - right
    smoothed = plain
    if SMOOTH:
        smoothed = (1 - smoothing) * plain + smoothing * (log_partition - level / CLASSES)
    tl.store(losses + row, tl.where(target < 0, 0.0, smoothed))
    tl.store(losses + offset + row, tl.where(target < 0, 0.0, plain))
    if GRADIENT:
        counts = tl.where(target < 0, 0.0, 1.0)
        share = counts / partition
        low = smoothing / CLASSES * counts
        if WHOLE:
            slope = odds * share - low
            tl.store(start + column, slope.to(logits.dtype.element_ty), mask=column < STRIDE)
        else:
            for first in range(0, CLASSES, BLOCK):
                value = read(start, bias, first + column, CLASSES, STRIDE, BIAS)
                slope = exp2(value * LOG2E - highest * LOG2E) * share - low
                tl.store(start + first + column, slope.to(logits.dtype.element_ty), mask=first + column < STRIDE)
        tl.debug_barrier()  # the row is complete before its target is overwritten
        slope = exp2((right - highest) * LOG2E) * share - low - (1 - smoothing)
        tl.store(start + target, slope.to(logits.dtype.element_ty), mask=(target >= 0) & (target < CLASSES))


@triton.jit
@no_type_check
def read(start, bias, column, CLASSES: tl.constexpr, STRIDE: tl.constexpr, BIAS: tl.constexpr):
    value = tl.load(start + column, mask=column < STRIDE, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + column, mask=column < STRIDE, other=0.0).to(tl.float32)
    return tl.where(column < CLASSES, value, float("-inf"))
