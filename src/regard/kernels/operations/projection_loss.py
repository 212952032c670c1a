"""The projection and its loss: a kernel on CUDA, chunks elsewhere, the plain expression while torch.compile traces.

With chunks of tokens, the logits of a whole batch are never held in memory. The gradient of the logits is p - q, with q
the smoothed target, which can be computed together with a chunk's logits. The forward pass therefore replaces the
logits by their gradient in place, and accumulates the gradients of hidden, weight and bias; the backward pass only
multiplies these by the gradient of the sum. No log-softmax is stored, and none is computed twice. On a CUDA device a
single kernel computes everything between the products of a chunk; see `triton/projection_loss.py`.
"""

# t tokens · c tokens of a chunk · d width · v classes
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.errors import ArgumentError, ShapeError
from regard.kernels import reference
from regard.kernels.planning import has_kernel
from regard.machine import wide_dtype

LOGITS = 1 << 22  # logits of a chunk, by default: 16 MiB in float32, which fits a CPU's last-level cache
LOGITS_CUDA = 1 << 27


def projection_loss(
    hidden: Float[Tensor, "t d"],
    weight: Float[Tensor, "v d"],
    bias: Float[Tensor, " v"] | None,
    targets: Int[Tensor, " t"],
    smoothing: float = 0.0,
    chunk: int | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Sum the label-smoothed cross-entropies of all tokens, and the plain ones, from which a perplexity is computed.

    The smoothing's mass is spread over all classes, as in torch. Tokens whose target is below zero are ignored: a batch
    may be padded to a fixed size. The second sum carries no gradient. `chunk` is the number of tokens that are
    projected at once. Under torch.compile this is the plain expression, which the compiler fuses itself.
    """
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1]:
        raise ShapeError(f"hidden: {list(hidden.shape)} given, expected [t d] beside a weight {list(weight.shape)}")
    if targets.shape != hidden.shape[:1]:
        raise ShapeError(f"targets: {list(targets.shape)} given, expected one per token, [{len(hidden)}]")
    if not 0 <= smoothing < 1:
        raise ArgumentError(f"smoothing: {smoothing!r} given, expected a number from 0 up to, not including, 1")
    if chunk is not None and chunk < 1:
        raise ArgumentError(f"chunk: {chunk!r} given, expected at least 1 token")
    if torch.compiler.is_compiling():
        return reference.projection_loss(hidden, weight, bias, targets, smoothing)
    device, training = hidden.device.type, torch.is_grad_enabled()
    narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    if hidden.is_cuda and has_kernel(device, narrow):
        from regard.kernels.triton import projection_loss as triton

        total, plain = triton.ProjectionLoss.apply(hidden, weight, bias, targets, smoothing, chunk, training, narrow)
        return total, plain
    if torch.is_autocast_enabled(device):
        hidden, weight = hidden.to(narrow), weight.to(narrow)
        bias = None if bias is None else bias.to(narrow)
    if chunk is None:
        chunk = max(1, (LOGITS_CUDA if hidden.is_cuda else LOGITS) // len(weight))
    total, plain = ProjectionLoss.apply(hidden, weight, bias, targets, smoothing, chunk, training)
    return total, plain


# ---- in chunks


class ProjectionLoss(torch.autograd.Function):
    """Losses and gradients in one pass."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Run the forward pass on the arguments of `projection_loss`, and whether to compute gradients."""
        hidden, weight, bias, targets, smoothing, chunk, training = inputs
        wide, exact = torch.promote_types(hidden.dtype, torch.float32), wide_dtype(hidden.device)
        needs = [training and need for need in ctx.needs_input_grad[:3]]
        d_hidden = torch.empty_like(hidden) if needs[0] else None
        d_weight = torch.zeros_like(weight, dtype=wide) if needs[1] else None
        d_bias = torch.zeros_like(weight[:, 0], dtype=wide) if needs[2] else None
        # The sum of all classes' logits is one product with the sum of the weight's rows.
        row_sum = weight.to(wide).sum(0) if smoothing else None
        bias_sum = bias.to(wide).sum() if smoothing and bias is not None else 0.0
        total, plain = hidden.new_zeros((2,), dtype=exact).unbind()
        classes, same = len(weight), hidden.dtype == wide
        buffer = hidden.new_empty(min(chunk, len(hidden)), classes)
        with torch.autocast(hidden.device.type, enabled=False):
            for first in range(0, len(hidden), chunk):
                x, y = hidden[first : first + chunk], targets[first : first + chunk, None]
                real, y = y >= 0, y.clamp(min=0)
                narrow = buffer[: len(x)]
                if bias is None:
                    torch.mm(x, weight.t(), out=narrow)
                else:
                    torch.addmm(bias, x, weight.t(), out=narrow)
                logits = narrow if same else narrow.to(wide)
                highest = logits.amax(1, keepdim=True)
                right = logits.gather(1, y) - highest
                odds = logits.sub_(highest).exp_()
                partition = odds.sum(1, keepdim=True)
                log_partition = partition.log()
                loss = log_partition - right
                plain += loss.where(real, 0.0).sum(dtype=exact)
                if row_sum is not None:
                    mean = (x.to(wide) @ row_sum + bias_sum)[:, None] / classes
                    loss = (1 - smoothing) * loss + smoothing * (log_partition + highest - mean)
                total += loss.where(real, 0.0).sum(dtype=exact)
                if not any(needs):
                    continue
                counts = real.to(wide)
                gradient = odds.mul_(counts / partition)  # p, then p - q
                if smoothing:
                    gradient.sub_(counts * (smoothing / classes))
                gradient.scatter_add_(1, y, counts * (smoothing - 1))
                if d_bias is not None:
                    d_bias += gradient.sum(0)
                gradient = gradient if same else narrow.copy_(gradient)
                if d_hidden is not None:
                    torch.mm(gradient, weight, out=d_hidden[first : first + chunk])
                if d_weight is not None:
                    if same:
                        d_weight.addmm_(gradient.t(), x)
                    else:
                        d_weight += gradient.t() @ x
        d_weight, d_bias = (None if each is None else each.to(weight.dtype) for each in (d_weight, d_bias))
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        total, plain = total.to(wide), plain.to(wide)
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if each is None else each * grad for each in ctx.saved_tensors)
        return (*scaled, None, None, None, None)
