"""The layers of the paper's table 1: their operations, their sequential steps, and the distance between words."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import Attention, Dot, Monotonic, use_backend

__all__ = [
    "COUNTED",
    "FORMULAS",
    "KERNEL",
    "LAYERS",
    "LENGTHS",
    "PATHS",
    "RADIUS",
    "WIDTH",
    "Convolution",
    "Recurrent",
    "SelfAttention",
    "depends_on",
    "depth",
    "fused",
    "operations",
    "path",
    "time_layers",
]

WIDTH, KERNEL, RADIUS = 256, 3, 8
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
COUNTED = (64, 128, 256)  # lengths at which operations and steps are counted
FORMULAS: dict[str, tuple[str, Callable[[int, int], float]]] = {  # multiply-adds; a recurrence reads and keeps
    "recurrent": ("2 n d²", lambda n, d: 2 * n * d**2),
    "convolution": (f"{KERNEL} n d²", lambda n, d: KERNEL * n * d**2),
    "self-attention": ("2 n² d", lambda n, d: 2 * n**2 * d),
    "window": (f"2 · {2 * RADIUS + 1} n d", lambda n, d: 2 * (2 * RADIUS + 1) * n * d),
}
PATHS: dict[str, tuple[str, Callable[[int], int]]] = {
    "recurrent": ("n", lambda n: n),
    "convolution": ("n / ⌊k/2⌋", lambda n: math.ceil((n - 1) / (KERNEL // 2))),
    "self-attention": ("1", lambda n: 1),
    "window": ("n / r", lambda n: math.ceil((n - 1) / RADIUS)),
}


class Recurrent(nn.Module):
    """A recurrence, h_i = tanh(W x_i + U h_{i-1}), written out."""

    def __init__(self, width: int):
        super().__init__()
        self.read, self.keep = nn.Linear(width, width), nn.Linear(width, width, bias=False)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Run the recurrence position by position."""
        state, states = torch.zeros_like(x[0]), []
        for word in self.read(x):
            state = torch.tanh(word + self.keep(state[None])[0])
            states.append(state)
        return torch.stack(states)


class Convolution(nn.Module):
    """A convolution of every position and its neighbours, a matrix each."""

    def __init__(self, width: int):
        super().__init__()
        self.net = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Convolve all positions at once."""
        return self.net(x.t()[None])[0].t()


class SelfAttention(nn.Module):
    """Self-attention alone, as the table counts it: queries, keys and values are the input."""

    def __init__(self, width: int, radius: int | None = None):
        super().__init__()
        self.attention = Attention(Dot(scaled=True), span=None if radius is None else Monotonic(radius))
        self.backend = "dense" if radius is None else "window"

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Attend everywhere, or within a window, outside of which no key is touched."""
        with use_backend(self.backend):
            return self.attention(x, x)


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "recurrent": Recurrent,
    "convolution": Convolution,
    "self-attention": SelfAttention,
    "window": lambda width: SelfAttention(width, RADIUS),
}


def operations(layer: nn.Module, n: int, width: int) -> int:
    """Count the multiply-adds of matrix products and convolutions in a forward pass."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(torch.randn(n, width))
    return int(counter.get_total_flops()) // 2


def depth(layer: nn.Module, n: int, width: int) -> int:
    """Count the longest chain of operations of which each needs the one before: no number of processors shortens it."""
    result = layer(torch.randn(n, width, requires_grad=True))
    lengths: dict[Any, int] = {}
    waiting = [result.grad_fn]
    while waiting:  # a loop, not a recursion: a chain may be longer than Python's stack
        node = waiting[-1]
        before = [each for each, _ in node.next_functions if each is not None]
        missing = [each for each in before if each not in lengths]
        if missing:
            waiting += missing
            continue
        lengths[node] = 1 + max((lengths[each] for each in before), default=0)
        waiting.pop()
    return lengths[result.grad_fn]


def path(name: str, n: int, width: int = 8) -> int:
    """Count the layers until the last position depends on the first; for a recurrence, steps within its one layer."""
    x = torch.randn(n, width, requires_grad=True)
    if name == "recurrent":
        layer, steps = Recurrent(width), 0
        state = torch.zeros(width)
        for word in layer.read(x):
            state = torch.tanh(word + layer.keep(state[None])[0])
            steps += 1
        return steps if depends_on(state, x) else 0
    y, layers = x, 0
    while layers < n:
        y, layers = LAYERS[name](width)(y), layers + 1
        if depends_on(y[-1], x):
            return layers
    return 0


def depends_on(end: Tensor, x: Float[Tensor, "n d"]) -> bool:
    """Return whether an output depends on the first position: whether there is any gradient."""
    (gradient,) = torch.autograd.grad(end.sum(), x, retain_graph=True)
    return bool(gradient[0].any())


def time_layers(
    layers: dict[str, nn.Module], lengths: Sequence[int], width: int, rounds: int
) -> dict[str, list[float]]:
    """Time a forward pass by length, in seconds, in turn; the recurrence is torch's own fused one, which is fastest."""
    quick: dict[str, Callable[..., Any]] = {
        **layers,
        "recurrent": nn.RNN(width, width, batch_first=True),
        "self-attention": fused,
    }
    timings: dict[str, list[float]] = {name: [] for name in layers}
    with torch.no_grad():
        for n in lengths:
            x = torch.randn(n, width)
            seconds: dict[str, list[float]] = {name: [] for name in layers}
            for number in range(rounds + 1):
                for name in layers:
                    began = time.perf_counter()
                    quick[name](x[None] if name == "recurrent" else x)
                    if number:  # the first one pays for allocation
                        seconds[name].append(time.perf_counter() - began)
            for name, times in seconds.items():
                timings[name].append(statistics.median(times))
    return timings


def fused(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Compute self-attention without holding its scores in memory."""
    y = x[None, None]
    return F.scaled_dot_product_attention(y, y, y)[0, 0]
