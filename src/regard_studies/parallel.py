r"""The operations, sequential steps and path lengths of layers: table 1 of the Transformer paper.

Vaswani et al. 2017 (arXiv:1706.03762), section 4: a layer of self-attention has $n^2 d$ operations, 1 sequential step
and paths of length 1; a recurrent layer $n d^2$, n and n; a convolution $k n d^2$, 1 and $\log_k n$ if it is dilated,
otherwise $n / k$; self-attention within r positions $r n d$, 1 and $n / r$. The study measures all three on layers that
run: it counts multiply-adds; steps are the longest chain in autograd's graph; a path is the number of layers after
which the last position depends on the first. It also measures the time of a forward pass.
"""

# n positions · d width · k width of a kernel · r radius of a window

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
from regard.inspection import plot
from regard_studies.page import Page, Plot, Table, Verdict, show, signed

WIDTH, KERNEL, RADIUS = 256, 3, 8
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
COUNTED = (64, 128, 256)  # lengths at which operations and steps are counted
FORMULAS: dict[str, tuple[str, Callable[[int, int], float]]] = {  # multiply-adds; a recurrence has W x and U h
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
LAYER_COLOURS = {"recurrent": plot.RED, "convolution": plot.ORANGE, "self-attention": plot.BLUE, "window": plot.GREEN}
LINEAR = 2.0  # growth of a linear cost when the length doubles
NOISE = 1.4  # factor by which a time may be wrong, in either direction; slower growth is not linear for any reason


class Recurrent(nn.Module):
    """The recurrence h_i = tanh(W x_i + U h_{i-1}) as a loop."""

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
    """A convolution of every position with its neighbours, with one matrix per offset."""

    def __init__(self, width: int):
        super().__init__()
        self.net = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Convolve all positions at once."""
        return self.net(x.t()[None])[0].t()


class SelfAttention(nn.Module):
    """Self-attention as the table counts it, without projections: queries, keys and values are the input."""

    def __init__(self, width: int, radius: int | None = None):
        super().__init__()
        self.attention = Attention(Dot(scaled=True), span=None if radius is None else Monotonic(radius))
        self.backend = "dense" if radius is None else "window"

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Attend to all keys, or only to those in a window; keys outside it cost nothing."""
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
    """Count the longest chain of operations in which each needs the previous one; parallelism cannot shorten it."""
    result = layer(torch.randn(n, width, requires_grad=True))
    lengths: dict[Any, int] = {}
    waiting = [result.grad_fn]
    while waiting:  # a loop and not a recursion, because a chain may exceed Python's recursion limit
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
    """Count the layers until the last position depends on the first; for a recurrence, the steps in its one layer."""
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
    """Return whether an output depends on the first position, that is, has a nonzero gradient there."""
    (gradient,) = torch.autograd.grad(end.sum(), x, retain_graph=True)
    return bool(gradient[0].any())


def time_layers(
    layers: dict[str, nn.Module], lengths: Sequence[int], width: int, rounds: int
) -> dict[str, list[float]]:
    """Time forward passes by length, in seconds, in turns; recurrence and self-attention are PyTorch's fused ones."""
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
                    if number:  # the first round includes allocation
                        seconds[name].append(time.perf_counter() - began)
            for name, times in seconds.items():
                timings[name].append(statistics.median(times))
    return timings


def fused(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Compute self-attention without storing its scores."""
    y = x[None, None]
    return F.scaled_dot_product_attention(y, y, y)[0, 0]


def layer_tables(
    counted: dict[str, list[int]],
    steps: dict[str, list[int]],
    paths: dict[str, list[int]],
    seconds: dict[str, list[float]],
    lengths: Sequence[int],
) -> list[Table]:
    return [
        Table(
            caption=f"Multiply-adds (millions) and sequential steps, width {WIDTH}",
            columns=["layer", "table 1", *(f"n = {n}" for n in COUNTED), *(f"steps, n = {n}" for n in COUNTED)],
            rows=[[name, FORMULAS[name][0], *(each / 1e6 for each in counted[name]), *steps[name]] for name in counted],
            formats=["", "", *[".2f"] * len(COUNTED), *["d"] * len(COUNTED)],
            note="The window's keys are read in slices that several queries share, some of which a query then ignores.",
        ),
        Table(
            caption="From the last position to the first: layers, or steps of a recurrence",
            columns=["layer", "expected", "n = 16", "n = 32"],
            rows=[[name, PATHS[name][0], *each] for name, each in paths.items()],
            formats=["", "", "d", "d"],
            note="The convolution is not dilated; dilated ones need about log n layers.",
        ),
        Table(
            caption=f"Milliseconds of a forward pass, one thread, width {WIDTH}",
            columns=["layer", *(f"n = {n}" for n in lengths)],
            rows=[[name, *(each * 1e3 for each in times)] for name, times in seconds.items()],
            formats=["", *[".3f"] * len(lengths)],
        ),
    ]


def time_plot(seconds: dict[str, list[float]], lengths: Sequence[int]) -> Plot:
    figure, (axes,) = plot.panels(1, titles=["Milliseconds of a forward pass"], height=3.6)
    for name, times in seconds.items():
        axes.plot(
            lengths, [each * 1e3 for each in times], color=LAYER_COLOURS[name], marker="o", markersize=3, label=name
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(lengths), [f"{n:,}" for n in lengths])
    axes.set_xlabel("positions n")
    axes.axvline(WIDTH, color=plot.GREY, linewidth=0.8, linestyle=":")
    plot.legend(axes)
    return Plot(
        "time",
        figure,
        f"The dotted line is n = d = {WIDTH}. One thread: nothing is done at once.",
        f"Time of four layers against the number of positions, {lengths[0]} to {lengths[-1]}, on two logarithmic axes.",
    )


def run(seed: int = 0, quick: bool = False) -> Page:
    """Measure the layers, judge the claims and write the page."""
    lengths = LENGTHS[:-2] if quick else LENGTHS
    with signed(seed=seed, quick=quick, dtype="float32") as clock:
        layers = {name: make(WIDTH) for name, make in LAYERS.items()}
        counted = {name: [operations(layer, n, WIDTH) for n in COUNTED] for name, layer in layers.items()}
        steps = {name: [depth(layer, n, WIDTH) for n in COUNTED] for name, layer in layers.items()}
        paths = {name: [path(name, n) for n in (16, 32)] for name in LAYERS}
        seconds = time_layers(layers, lengths, WIDTH, 5 if quick else 15)
        signature = clock.signature()
    return Page(
        name="parallel",
        title="What a layer costs, and how long words are apart",
        claim="Self-attention connects all positions by a constant number of sequential operations and by paths of "
        "length one, where a recurrence needs n of both; it has fewer operations while a sequence is shorter than its "
        "vectors are wide, and keeping it to a neighbourhood of r makes its cost linear and its paths n/r long.",
        source="Vaswani et al. 2017, Attention Is All You Need, section 4 and table 1 (arXiv:1706.03762)",
        measured=[
            f"Four layers of width {WIDTH}: a recurrence, a convolution with kernels of {KERNEL}, self-attention, and "
            f"self-attention within {RADIUS} positions on each side. Multiply-adds are counted while they run. Steps "
            "are the longest chain in the graph that autograd keeps. A path is how many layers it takes until the last "
            "position has a gradient in the first; of a recurrence, how many steps of its one layer.",
            "Times are of one sequence on one thread: what can be done at once is not, so that they show the "
            "operations, and how much a step costs by itself. The recurrence is torch's own, fused; so is "
            "self-attention.",
        ],
        tables=layer_tables(counted, steps, paths, seconds, lengths),
        plots=[time_plot(seconds, lengths)],
        verdicts=verdicts(counted, steps, paths, seconds, lengths),
        caveats=[
            "Projections of queries, keys and values are not counted, as the paper's table does not: in a Transformer "
            "they are 4 n d² more.",
            "These four layers stand alone and are not trained: they say what one costs, not what it is worth.",
            "On a GPU a chain of steps costs far more than its operations; here it costs about what they do.",
        ],
        signature=signature,
    )


def verdicts(
    counted: dict[str, list[int]],
    steps: dict[str, list[int]],
    paths: dict[str, list[int]],
    seconds: dict[str, list[float]],
    lengths: Sequence[int],
) -> list[Verdict]:
    exact = {name: [FORMULAS[name][1](n, WIDTH) for n in COUNTED] for name in counted}
    deviation = {name: max(abs(a / b - 1) for a, b in zip(counted[name], exact[name], strict=True)) for name in counted}
    near = {name: value for name, value in deviation.items() if name != "window"}
    growth = {name: counted[name][-1] / counted[name][-2] for name in counted}
    short = COUNTED[0]
    return [
        Verdict(
            "recurrence, convolution and self-attention have the operations of the table",
            max(near.values()) < 0.02,
            "counted over expected at n = 256: "
            + ", ".join(f"{name} {counted[name][-1] / exact[name][-1]:.3f}" for name in near),
        ),
        Verdict(
            "twice the length is four times the operations of self-attention, and twice those of all others",
            abs(growth["self-attention"] - 4) < 0.1
            and all(abs(value - 2) < 0.25 for name, value in growth.items() if name != "self-attention"),
            ", ".join(f"{name} × {value:.2f}" for name, value in growth.items()),
        ),
        Verdict(
            "self-attention has fewer operations than a recurrence while n < d",
            all(
                (a < b) == (n < WIDTH)
                for n, a, b in zip(COUNTED, counted["self-attention"], counted["recurrent"], strict=True)
            ),
            f"n = {short}, d = {WIDTH}: {counted['self-attention'][0] / 1e6:.1f} against "
            f"{counted['recurrent'][0] / 1e6:.1f} million; n = d: {counted['self-attention'][-1] / 1e6:.1f} and "
            f"{counted['recurrent'][-1] / 1e6:.1f}",
        ),
        Verdict(
            "sequential steps grow with the length of a recurrence, and of nothing else",
            steps["recurrent"][-1] > 1.9 * steps["recurrent"][-2]
            and all(len(set(each)) == 1 for name, each in steps.items() if name != "recurrent"),
            ", ".join(f"{name} {each[0]} → {each[-1]}" for name, each in steps.items())
            + f" (n = {COUNTED[0]} → {COUNTED[-1]})",
        ),
        Verdict(
            "the last word is one layer from the first in self-attention, and n steps, n/⌊k/2⌋ or n/r layers elsewhere",
            all(measured_lengths == [PATHS[name][1](n) for n in (16, 32)] for name, measured_lengths in paths.items()),
            ", ".join(f"{name} {each[-1]}" for name, each in paths.items()) + " at n = 32",
        ),
        Verdict(
            "self-attention is the faster one while sequences are shorter than vectors are wide",
            all(
                a < b
                for n, a, b in zip(lengths, seconds["self-attention"], seconds["recurrent"], strict=True)
                if n < WIDTH
            ),
            ", ".join(
                f"n = {n}: {show(b / a, '.1f')} × as fast"
                for n, a, b in zip(lengths, seconds["self-attention"], seconds["recurrent"], strict=True)
                if n <= 2 * WIDTH
            ),
        ),
        Verdict(
            "a window makes time linear in the length",
            LINEAR / NOISE < seconds["window"][-1] / seconds["window"][-2] < LINEAR * NOISE,
            f"twice the length, {lengths[-2]} to {lengths[-1]}: window × "
            f"{seconds['window'][-1] / seconds['window'][-2]:.2f}, self-attention × "
            f"{seconds['self-attention'][-1] / seconds['self-attention'][-2]:.2f}",
        ),
    ]
