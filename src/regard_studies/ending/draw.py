"""The tables and the plot of the study of endings."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from regard.inspection import Cell, colours, plot
from regard_studies.ending.measure import Endings, wasted
from regard_studies.page import Plot, Table

__all__ = ["LABELS", "ending_plot", "place_table", "system_table"]

LABELS = {"sinusoidal": "sinusoidal", "rotary": "rotary", "none": "no positions"}
COLOURS = {"sinusoidal": plot.BLUE, "rotary": plot.GREEN, "none": plot.RED}
Truth = Mapping[str, Float[np.ndarray, " t"]]


def system_table(figures: Mapping[str, Mapping[str, Endings]], truth: Truth, names: Mapping[str, str]) -> Table:
    """Tabulate the figures of each system on each corpus."""
    rows: list[list[Cell]] = [
        [names[corpus], LABELS[name], wasted(each.anywhere, truth[corpus]), each.perplexity, each.parameters]
        for corpus, systems in figures.items()
        for name, each in systems.items()
    ]
    columns = ["corpus", "positions", "distance from the true share, points", "perplexity of a word", "parameters"]
    return Table("How well the end is known", columns, rows, ["", "", ".2f", ".2f", ",d"])


def place_table(corpus: str, systems: Mapping[str, Endings], truth: Float[np.ndarray, " t"]) -> Table:
    """Tabulate P(end) by place, in percent, over all texts that reach it, and over those that end there."""
    positions = [place for place in range(len(truth)) if not np.isnan(truth[place])]
    rows: list[list[Cell]] = [["the true share", *(100 * float(truth[place]) for place in positions)]]
    for name, each in systems.items():
        rows.append([LABELS[name], *(100 * float(each.anywhere[place]) for place in positions)])
    for name, each in systems.items():
        ends = [None if np.isnan(each.here[place]) else 100 * float(each.here[place]) for place in positions]
        rows.append([f"{LABELS[name]}, where it does end", *ends])
    columns = ["P(end), %, after so many words", *map(str, positions)]
    return Table(f"The end by place: {corpus}", columns, rows, ["", *[".1f"] * len(positions)])


def ending_plot(figures: Mapping[str, Mapping[str, Endings]], truth: Truth, names: Mapping[str, str]) -> Plot:
    """Draw P(end) by place, a panel a corpus."""
    titles = [names[corpus][0].upper() + names[corpus][1:] for corpus in figures]
    figure, axes = plot.panels(len(figures), titles=titles, height=3.2, width=7.6)
    for panel, (corpus, systems) in zip(axes, figures.items(), strict=True):
        panel.plot(100 * truth[corpus], color=colours.FAINT, linestyle="--", linewidth=1.6, label="the true share")
        for name, each in systems.items():
            panel.plot(100 * each.anywhere, color=COLOURS[name], marker="o", markersize=3, label=LABELS[name])
        panel.set_xlabel("words before it")
        panel.set_ylim(bottom=0)
    axes[0].set_ylabel("P(end), %")
    plot.legend(axes[0], loc="upper left")
    return Plot(
        "ending",
        figure,
        "The probability of the end after so many words, the mean over all texts that are at least so long. Dashed: "
        "how many of them do end there.",
        "A panel a corpus: P(end) over the number of words for each way to tell positions, beside the true share.",
    )
