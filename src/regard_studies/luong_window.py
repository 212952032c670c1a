"""The cost of a window: operations and time of one attention against the length of its source.

Luong et al. 2015 (arXiv:1508.04025), section 3.2: global attention is expensive, and impractical for paragraphs and
documents; a window of 2D + 1 costs the same however long the source is. As many queries as there are annotations, as
in a translation of the same length.
"""

# b sentences · n queries and annotations · d width

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import Attention, General, Monotonic, Predictive, Span, use_backend
from regard.inspection import plot
from regard_studies.page import Plot, Table, Verdict, show

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
RADIUS = 10
COUNTED = 64  # the width at which operations are counted: each is proportional to it
COLOURS = {"global": plot.BLUE, "local-m": plot.ORANGE, "local-p": plot.GREEN}


@dataclass(frozen=True)
class Cost:
    """The cost by span: multiply-adds per query, and seconds of a call, a value per length."""

    lengths: Sequence[int]
    width: int
    rows: int
    device: str
    operations: Mapping[str, Sequence[float]]
    seconds: Mapping[str, Sequence[float]]


def layer(span: str, width: int) -> Attention:
    """Build Luong's attention with the score general."""
    spans: dict[str, Span | None] = {"global": None, "local-m": Monotonic(RADIUS), "local-p": None}
    return Attention(
        General(width, width), span=Predictive(width, RADIUS) if span == "local-p" else spans[span]
    ).requires_grad_(False)


def operations(span: str, length: int, width: int = COUNTED) -> float:
    """Count the multiply-adds of a query's matrix products, keys projected before; on a CPU, where all are counted."""
    attention = layer(span, width)
    keys = attention.prepare(torch.randn(1, length, width))
    query = torch.randn(1, length, width)
    with use_backend("dense" if span == "global" else "window"), FlopCounterMode(display=False) as counter:
        attention(query, keys)
    return float(counter.get_total_flops()) / 2 / length


def measure_cost(device: torch.device, *, quick: bool) -> Cost:
    """Count operations, and time calls on a device with the kernels that Regard chooses there."""
    lengths = LENGTHS[:5] if quick else LENGTHS
    width, rows, rounds = (64, 1, 20) if quick else (512, 8, 10) if device.type == "cuda" else (256, 1, 5)
    counted = {span: [operations(span, length) for length in lengths] for span in COLOURS}
    seconds: dict[str, list[float]] = {span: [] for span in COLOURS}
    with torch.no_grad():
        for length in lengths:
            states = torch.randn(rows, length, width, device=device)
            for span, times in seconds.items():
                times.append(time_attention(layer(span, width).to(device), states, rounds))
    return Cost(lengths, width, rows, device.type, counted, seconds)


def time_attention(attention: Attention, states: Tensor, rounds: int) -> float:
    """Time a call in seconds, the shortest of several, so that other work on the machine does not count."""
    keys, best = attention.prepare(states), float("inf")
    for _ in range(rounds + 2):
        synchronise(states.device)
        began = time.perf_counter()
        attention(states, keys)
        synchronise(states.device)
        best = min(best, time.perf_counter() - began)
    return best


def synchronise(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def cost_verdicts(cost: Cost) -> list[Verdict]:
    """Judge whether a window's cost depends on the length."""
    first, last = cost.lengths[0], cost.lengths[-1]
    counts, times = cost.operations, cost.seconds
    grown = {span: each[-1] / each[0] for span, each in counts.items()}
    saved = {span: times["global"][-1] / each[-1] for span, each in times.items() if span != "global"}
    return [
        Verdict(
            "a query's operations do not grow with the source in a window, and grow with it without one",
            all(grown[span] < 1.5 for span in grown if span != "global") and grown["global"] > last / first / 2,
            f"from {first} to {last:,} annotations: "
            + ", ".join(f"{span} × {show(value, '.2f' if value < 10 else '.0f')}" for span, value in grown.items()),
        ),
        Verdict(
            "of a long source a window is the faster one",
            all(value > 1 for value in saved.values()),
            f"{last:,} annotations: {', '.join(f'{span} {value:.1f} × as fast' for span, value in saved.items())}",
        ),
    ]


def cost_table(cost: Cost) -> Table:
    """Tabulate milliseconds and operations, a row a span."""
    return Table(
        caption=f"Milliseconds of a call by annotations n, with n queries ({cost.rows} × n × {cost.width}, "
        f"{'GPU' if cost.device == 'cuda' else 'CPU'}); thousand multiply-adds per query",
        columns=["span", *(f"n = {n:,}" for n in cost.lengths), *(f"per query, n = {n:,}" for n in ends(cost))],
        rows=[
            [
                span,
                *(1e3 * each for each in cost.seconds[span]),
                *(cost.operations[span][place] / 1e3 for place in (0, -1)),
            ]
            for span in cost.seconds
        ],
        formats=["", *[".3f"] * len(cost.lengths), ".1f", ".1f"],
        note=f"Score general, windows of ±{RADIUS}. Multiply-adds are counted at a width of {COUNTED}; slices of keys "
        "that neighbouring queries share are counted whole.",
    )


def ends(cost: Cost) -> tuple[int, int]:
    """Return the shortest and the longest length."""
    return cost.lengths[0], cost.lengths[-1]


def cost_plot(cost: Cost) -> Plot:
    """Draw time and operations against length."""
    figure, axes = plot.panels(2, titles=["Milliseconds of a call", "Multiply-adds a query"], height=3.2)
    for span, colour in COLOURS.items():
        axes[0].plot(cost.lengths, [1e3 * each for each in cost.seconds[span]], "o-", color=colour, markersize=3)
        axes[1].plot(cost.lengths, cost.operations[span], "o-", color=colour, markersize=3, label=span)
    for panel in axes:
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(list(cost.lengths), [str(n) for n in cost.lengths])
        low, high = panel.get_ylim()
        marks = [digit * 10.0**power for power in range(-3, 8) for digit in (1, 2, 5)]
        visible = [mark for mark in marks if low <= mark <= high]
        panel.set_yticks(visible, [f"{mark:,g}" if mark < 1 else f"{mark:,.0f}" for mark in visible])
        panel.set_yticks([], minor=True)
        panel.set_xlabel("annotations, and as many queries")
    plot.legend(axes[1])
    return Plot(
        "windows",
        figure,
        f"One call with as many queries as annotations, windows of ±{RADIUS}, on two logarithmic axes.",
        "Two panels of three lines against the length of the source: the global ones rise fastest.",
    )
