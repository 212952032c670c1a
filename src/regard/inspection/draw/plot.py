"""Line plots for pages: few inks, names at the lines, nothing that does not say something."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.evaluation import FEW, Lengths
from regard.inspection.draw.colours import BLACK, FAINT, INK, RULE
from regard.inspection.draw.heatmap import Drawing

# Okabe and Ito's colours, told apart by every kind of colour vision; the names say roughly what they look like.
BLUE, RED, GREEN, ORANGE, PINK, GREY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#8b93a1"
SKY = "#56b4e9"

# Each colour's partner on dark paper; a page swaps them.
DARK = {
    INK: "#e4e7ec",
    FAINT: "#9aa4b2",
    RULE: "#3a414d",
    BLUE: "#4aa8e8",
    RED: "#f08242",
    GREEN: "#2fc79b",
    ORANGE: "#f0b53c",
    PINK: "#e09cc2",
    SKY: "#7cc7f2",
    GREY: "#8b93a2",
    BLACK: "#ffffff",
    "#ffffff": "#14171c",  # the paper itself, and what is written on a dark cell
}


def panels(count: int, *, titles: Sequence[str], height: float = 3.0, width: float = 7.2) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels side by side, on transparent paper."""
    figure = Drawing(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0.0)
    every_axes = figure.subplots(1, count, squeeze=False)[0]
    for axes, title in zip(every_axes, titles, strict=True):
        axes.patch.set_alpha(0.0)
        axes.set_title(title, fontsize=10, color=INK, loc="left", pad=8, parse_math=False)
        axes.tick_params(labelsize=8, colors=FAINT, length=3, width=0.6, which="both")
        axes.tick_params(which="minor", length=0)
        axes.grid(color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set(color=RULE, visible=side in ("left", "bottom"))
        axes.xaxis.label.set(size=9, color=FAINT)
        axes.yaxis.label.set(size=9, color=FAINT)
    return figure, list(every_axes)


def band(axes: Axes, x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str) -> None:
    """The quartiles around a median."""
    axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)


def legend(axes: Axes, **where: Any) -> None:
    """A legend without a frame, in the page's ink."""
    axes.legend(fontsize=8, frameon=False, labelcolor=INK, handlelength=1.6, **where)


def draw_lengths(lengths: Lengths, title: str = "") -> Figure:
    """A point for each range of lengths with its 95 % interval, the number of sentences, and the score over all."""
    buckets = lengths.buckets
    width = min(max(4.0, 1.2 + 0.75 * len(buckets)), 9.0)
    figure, (axes,) = panels(1, titles=[title or f"{lengths.metric} by source length"], width=width, height=3.0)
    axes.axhline(lengths.value, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.annotate(
        f"all {lengths.value:.1f}",
        (1.0, lengths.value),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=FAINT,
    )
    x, y = [], []
    for i, bucket in enumerate(buckets):
        if bucket.interval is None:
            axes.plot([i], [bucket.value], "o", color=BLUE, markersize=5, markerfacecolor="none", zorder=4)
            continue
        axes.plot([i, i], bucket.interval, "_-", color=BLUE, linewidth=1.0, markersize=7, zorder=3)
        x.append(i)
        y.append(bucket.value)
    axes.plot(x, y, "o-", color=BLUE, linewidth=1.4, markersize=5, zorder=4)
    axes.set_xticks(range(len(buckets)), [f"{bucket.name}\n{bucket.sentences:,}" for bucket in buckets])
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.5, len(buckets) - 0.5)
    axes.set_ylim(bottom=0)
    few = f" (open: fewer than {FEW})" if len(x) < len(buckets) else ""
    axes.set_xlabel(f"{lengths.unit} of the source; below: sentences{few}")
    axes.set_ylabel(lengths.metric)
    return figure
