"""The tables and the plot of the study of soft and hard attention."""

import math
from collections.abc import Mapping

from regard.inspection import Cell, colours, plot
from regard_studies.page import Plot, Table
from regard_studies.seed_statistics import SeedStatistics

__all__ = ["SYSTEMS", "looks_table", "published_table", "scores_plot", "scores_table"]

SYSTEMS = {
    "none": "no attention",
    "soft": "soft",
    "free": "soft (no penalty)",
    "hard": "hard (REINFORCE)",
    "through": "hard (straight through)",
}
COLOURS = {
    "none": plot.GREY,
    "soft": plot.BLUE,
    "free": plot.SKY,
    "hard": plot.ORANGE,
    "through": plot.GREEN,
}
Figures = Mapping[str, SeedStatistics]
SCORES = {"bleu-1": "BLEU-1", "bleu-2": "BLEU-2", "bleu-3": "BLEU-3", "bleu-4": "BLEU-4", "cider": "CIDEr-D"}


def scores_table(results: Mapping[str, Figures]) -> Table:
    """Tabulate how good the captions are, and how long training took."""
    with_exact = any(figures["exact"].mean > 1 for figures in results.values())
    columns = ["attention", *SCORES.values(), *["exact, %"] * with_exact, "seconds of training"]
    rows: list[list[Cell]] = []
    for name, figures in results.items():
        row: list[Cell] = [SYSTEMS[name], *(figures[key].as_text(".2f" if key == "cider" else ".1f") for key in SCORES)]
        row += [figures["exact"].as_text()] * with_exact
        rows.append([*row, figures["seconds"].as_text(".0f")])
    return Table(caption="How good the captions are, and what they cost", columns=columns, rows=rows)


def looks_table(results: Mapping[str, Figures]) -> Table:
    """Tabulate how widely attention is spread, and how often it is right."""
    looking = {name: figures for name, figures in results.items() if "entropy" in figures}
    cells = next(iter(looking.values()))["places"].mean
    grounded = "grounded" in next(iter(looking.values()))
    columns = ["attention", "entropy, nats", "largest weight, %", *["on the shape it speaks of, %"] * grounded]
    rows: list[list[Cell]] = []
    for name, figures in looking.items():
        row: list[Cell] = [SYSTEMS[name], figures["entropy"].as_text(".2f"), figures["largest"].as_text(".0f")]
        rows.append([*row, *([figures["grounded"].as_text()] if grounded else [])])
    chance = [f"{next(iter(looking.values()))['chance'].mean:.1f}"] if grounded else []
    rows.append([f"{cells:.0f} places alike", f"{math.log(cells):.2f}", f"{100 / cells:.0f}", *chance])
    return Table(caption="Where words look", columns=columns, rows=rows)


def published_table() -> Table:
    """Tabulate the rows of the paper's table 1 that this study repeats."""
    return Table(
        caption="Xu et al. 2015, table 1, Flickr8k, with an encoder of ImageNet",
        columns=["attention", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"],
        rows=[["soft", 67.0, 44.8, 29.9, 19.5], ["hard", 67.0, 45.7, 31.4, 21.3]],
        formats=["", *[".1f"] * 4],
    )


def scores_plot(results: Mapping[str, Figures]) -> Plot:
    """Draw BLEU-4 beside how widely attention is spread."""
    figure, (left, right) = plot.panels(2, titles=["BLEU-4", "Entropy of the weights, nats"], height=2.6)
    names = list(results)
    for i, name in enumerate(names):
        one = results[name]["bleu-4"]
        left.barh(i, one.mean, xerr=one.deviation or None, color=COLOURS[name], height=0.6, ecolor=colours.INK)
        if "entropy" in results[name]:
            spread = results[name]["entropy"]
            right.barh(
                i, spread.mean, xerr=spread.deviation or None, color=COLOURS[name], height=0.6, ecolor=colours.INK
            )
    for axes in (left, right):
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
    left.set_yticks(range(len(names)), [SYSTEMS[name] for name in names])
    right.set_yticks([])
    means = [results[name]["bleu-4"].mean for name in names]
    left.set_xlim(0, max(1.0, 1.1 * max(means)))
    cells = next(figures["places"].mean for figures in results.values() if "places" in figures)
    right.set_xlim(0, 1.05 * math.log(cells))
    right.axvline(math.log(cells), color=plot.GREY, linewidth=0.8, linestyle="--")
    right.text(math.log(cells), -0.45, "all alike ", ha="right", va="top", fontsize=8, color=plot.GREY)
    return Plot(
        "scores",
        figure,
        f"BLEU-4 of each system, and how far its looks are spread over the {cells:.0f} places of the grid.",
        "Bars, one per system: BLEU-4 on the left, the entropy of the attention weights on the right.",
    )
