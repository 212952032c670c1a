"""The tables and the picture of what scaling is worth in training."""

import typing
from collections.abc import Mapping

from regard.inspection.draw import plot
from regard.inspection.draw.table import Cell
from regard.studies.page import Plot, Table

if typing.TYPE_CHECKING:
    from regard.studies.scaling.training import ScalingFigures

__all__ = ["figures_table", "start_table", "trained_plot"]

NAMES = {"scaled": "q·k/√d", "dot": "q·k", "additive": "additive"}
STYLES = {"scaled": (plot.BLUE, "s"), "dot": (plot.RED, "o"), "additive": (plot.GREEN, "^")}


def split_name(name: str) -> tuple[str, int]:
    """The score and the width that a system is named by."""
    score, width = name.split("-")
    return score, int(width)


def sort_systems(found: Mapping[str, "ScalingFigures"]) -> list[str]:
    """By width, then by score."""
    return sorted(found, key=lambda name: (split_name(name)[1], list(NAMES).index(split_name(name)[0])))


def figures_table(found: Mapping[str, "ScalingFigures"]) -> Table:
    """What the trained systems do."""
    rows: list[list[Cell]] = [
        [
            split_name(name)[1],
            NAMES[split_name(name)[0]],
            found[name].made.bleu.as_text(),
            found[name].made.perplexity.as_text(".2f"),
            found[name].made.parameters / 1e6,
            found[name].made.seconds.mean,
        ]
        for name in sort_systems(found)
    ]
    return Table(
        caption="Trained: one head of width d_k",
        columns=["d_k", "score", "BLEU", "perplexity", "million parameters", "seconds of training"],
        rows=rows,
        formats=["d", "", "", "", ".2f", ".0f"],
    )


def start_table(found: Mapping[str, "ScalingFigures"]) -> Table:
    """The softmax before and after training."""
    rows: list[list[Cell]] = [
        [
            split_name(name)[1],
            NAMES[split_name(name)[0]],
            *(
                found[name].spread(when, figure).mean
                for when in ("before", "after")
                for figure in ("entropy", "jacobian", "gradient")
            ),
        ]
        for name in sort_systems(found)
    ]
    return Table(
        caption="Its softmax before training, and after it",
        columns=["d_k", "score", "entropy", "‖J‖", "‖∂W_Q‖", "entropy after", "‖J‖ after", "‖∂W_Q‖ after"],
        rows=rows,
        formats=["d", "", ".0%", ".2g", ".2g", ".0%", ".2g", ".2g"],
        note="Means over seeds and over all attentions. ‖J‖ is the median norm of the softmax's Jacobian, ‖∂W_Q‖ the "
        "norm of the gradient of all query projections.",
    )


def trained_plot(found: Mapping[str, "ScalingFigures"]) -> Plot:
    """BLEU and entropy against the width."""
    titles = ["BLEU after training", "Entropy of the weights"]
    figure, (left, right) = plot.panels(2, titles=titles, height=3.1)
    for score, (colour, mark) in STYLES.items():
        names = [name for name in sort_systems(found) if split_name(name)[0] == score]
        widths = [split_name(name)[1] for name in names]
        for name in names:
            values = found[name].made.bleu.values
            left.plot([split_name(name)[1]] * len(values), values, mark, color=colour, ms=4, alpha=0.5)
        left.plot(widths, [found[name].made.bleu.mean for name in names], color=colour, lw=1.6, label=NAMES[score])
        for when, style in (("before", (0, (2, 2))), ("after", "-")):
            means = [100 * found[name].spread(when, "entropy").mean for name in names]
            right.plot(widths, means, mark, color=colour, ms=4, lw=1.4, linestyle=style)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({split_name(name)[1] for name in found}))
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set_xlabel("d_k")
    right.set_ylim(0, 103)
    right.set_ylabel("% of log m")
    plot.legend(left, loc="best")
    return Plot(
        "trained",
        figure,
        "Left: BLEU by the width of the one head, a point a seed. Right: the entropy of its weights before training "
        "(dashed) and after it.",
        "Two line plots against the width of a head: BLEU, and the entropy of the weights before and after training, "
        "with and without scaling.",
    )
