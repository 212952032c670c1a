"""A score by the length of the source, drawn."""

from matplotlib.figure import Figure

from regard.evaluation.evaluate import FEW, Lengths
from regard.inspection.draw import plot
from regard.inspection.draw.heatmap import FAINT

__all__ = ["draw_lengths"]


def draw_lengths(lengths: Lengths, title: str = "") -> Figure:
    """A point for each range of lengths with its 95 % interval, the number of sentences, and the score over all."""
    buckets = lengths.buckets
    width = min(max(4.0, 1.2 + 0.75 * len(buckets)), 9.0)
    figure, (axes,) = plot.panels(1, titles=[title or f"{lengths.metric} by source length"], width=width, height=3.0)
    axes.axhline(lengths.value, color=plot.GREY, linewidth=1.0, linestyle=(0, (4, 3)))
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
            axes.plot([i], [bucket.value], "o", color=plot.BLUE, markersize=5, markerfacecolor="none", zorder=4)
            continue
        axes.plot([i, i], bucket.interval, "_-", color=plot.BLUE, linewidth=1.0, markersize=7, zorder=3)
        x.append(i)
        y.append(bucket.value)
    axes.plot(x, y, "o-", color=plot.BLUE, linewidth=1.4, markersize=5, zorder=4)
    axes.set_xticks(range(len(buckets)), [f"{bucket.name}\n{bucket.sentences:,}" for bucket in buckets])
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.5, len(buckets) - 0.5)
    axes.set_ylim(bottom=0)
    few = f" (open: fewer than {FEW})" if len(x) < len(buckets) else ""
    axes.set_xlabel(f"{lengths.unit} of the source; below: sentences{few}")
    axes.set_ylabel(lengths.metric)
    return figure
