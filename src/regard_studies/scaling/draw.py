"""The tables and the picture of the gain from scaling in training."""

import math
import typing
from collections.abc import Mapping

from regard.inspection import Cell, plot
from regard_studies.page import Plot, Table
from regard_studies.scaling.measure import KEYS, LENGTHS, Diagonal, Scores

if typing.TYPE_CHECKING:
    from regard_studies.scaling.measure import ScalingFigures

__all__ = [
    "diagonal_plot",
    "diagonal_table",
    "figures_table",
    "gradient_plot",
    "length_table",
    "scores_plot",
    "scores_table",
    "start_table",
    "trained_plot",
]

NAMES = {"scaled": "q·k/√d", "dot": "q·k", "additive": "additive"}
STYLES = {"scaled": (plot.BLUE, "s"), "dot": (plot.RED, "o"), "additive": (plot.GREEN, "^")}


def split_name(name: str) -> tuple[str, int]:
    """Split a system's name into its score and its width."""
    score, width = name.split("-")
    return score, int(width)


def sort_systems(figures: Mapping[str, "ScalingFigures"]) -> list[str]:
    """Sort systems by width, then by score."""
    return sorted(figures, key=lambda name: (split_name(name)[1], list(NAMES).index(split_name(name)[0])))


def figures_table(figures: Mapping[str, "ScalingFigures"]) -> Table:
    """Tabulate the figures of the trained systems."""
    rows: list[list[Cell]] = [
        [
            split_name(name)[1],
            NAMES[split_name(name)[0]],
            figures[name].translation.bleu.as_text(),
            figures[name].translation.perplexity.as_text(".2f"),
            figures[name].translation.parameters / 1e6,
            figures[name].translation.seconds.mean,
        ]
        for name in sort_systems(figures)
    ]
    return Table(
        caption="Trained: one head of width d_k",
        columns=["d_k", "score", "BLEU", "perplexity", "million parameters", "seconds of training"],
        rows=rows,
        formats=["d", "", "", "", ".2f", ".0f"],
    )


def start_table(figures: Mapping[str, "ScalingFigures"]) -> Table:
    """Tabulate the softmax before and after training."""
    rows: list[list[Cell]] = [
        [
            split_name(name)[1],
            NAMES[split_name(name)[0]],
            *(
                figures[name].spread(when, figure).mean
                for when in ("before", "after")
                for figure in ("entropy", "jacobian", "gradient")
            ),
        ]
        for name in sort_systems(figures)
    ]
    return Table(
        caption="Its softmax before training, and after it",
        columns=["d_k", "score", "entropy", "‖J‖", "‖∂W_Q‖", "entropy after", "‖J‖ after", "‖∂W_Q‖ after"],
        rows=rows,
        formats=["d", "", ".0%", ".2g", ".2g", ".0%", ".2g", ".2g"],
        note="Means over seeds and over all attentions. ‖J‖ is the median norm of the softmax's Jacobian, ‖∂W_Q‖ the "
        "norm of the gradient of all query projections.",
    )


def trained_plot(figures: Mapping[str, "ScalingFigures"]) -> Plot:
    """Draw BLEU and entropy against the width."""
    titles = ["BLEU after training", "Entropy of the weights"]
    figure, (left, right) = plot.panels(2, titles=titles, height=3.1)
    for score, (colour, mark) in STYLES.items():
        names = [name for name in sort_systems(figures) if split_name(name)[0] == score]
        widths = [split_name(name)[1] for name in names]
        for name in names:
            values = figures[name].translation.bleu.values
            left.plot([split_name(name)[1]] * len(values), values, mark, color=colour, ms=4, alpha=0.5)
        left.plot(
            widths, [figures[name].translation.bleu.mean for name in names], color=colour, lw=1.6, label=NAMES[score]
        )
        for when, style in (("before", (0, (2, 2))), ("after", "-")):
            means = [100 * figures[name].spread(when, "entropy").mean for name in names]
            right.plot(widths, means, mark, color=colour, ms=4, lw=1.4, linestyle=style)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({split_name(name)[1] for name in figures}))
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


def scores_table(raw: dict[int, Scores], scaled: dict[int, Scores]) -> Table:
    rows = [
        [d, r.spread, s.spread, r.largest, s.largest, r.entropy, s.entropy, r.jacobian[1], s.jacobian[1], r.average]
        for d, r, s in ((d, raw[d], scaled[d]) for d in raw)
    ]
    return Table(
        caption="Scores and their softmax against the width",
        columns=["d", "std", "std ÷√d", "max a", "max a ÷√d", "entropy", "entropy ÷√d", "‖J‖", "‖J‖ ÷√d", "mean ‖J‖"],
        rows=rows,
        formats=["d", ".2f", ".3f", ".3f", ".3f", ".1%", ".1%", ".2g", ".2g", ".2g"],
        note="Each pair: without scaling, then with 1/√d. Entropy as a share of log m; ‖J‖ is the median, and its mean "
        "is without scaling.",
    )


def length_table(counts: dict[int, Scores]) -> Table:
    return Table(
        caption="The same at width 64, against the number of keys",
        columns=["n", "std of q·k/√d", "std if divided by √n", "mean", "max a"],
        rows=[[n, c.spread, c.spread * 8 / math.sqrt(n), c.mean, c.largest] for n, c in counts.items()],
        formats=["d", ".3f", ".3f", ".4f", ".3f"],
        note="Divided by √n instead, the spread would depend on the length of the sentence.",
    )


def diagonal_table(diagonal: dict[tuple[int, int], Diagonal]) -> Table:
    return Table(
        caption="The diagonal's share of a row of R = s sᵀ",
        columns=["d", "n", "even", "|R|", "softmax", "softmax ÷√d", "W_Q ≠ W_K", "W_Q = W_K"],
        rows=[[d, n, 1 / n, *shares] for (d, n), shares in diagonal.items()],
        formats=["d", "d", ".1%", ".1%", ".1%", ".1%", ".1%", ".1%"],
        note="Projections are random, of variance 1/d, and scaled by 1/√d; one for both keeps sᵢ nearest to itself.",
    )


def scores_plot(raw: dict[int, Scores], scaled: dict[int, Scores]) -> Plot:
    figure, (left, right) = plot.panels(2, titles=["Standard deviation of scores", "Largest weight of a query"])
    widths = list(raw)
    left.plot(widths, [math.sqrt(d) for d in widths], color=plot.GREY, linestyle=(0, (2, 2)), linewidth=1, label="√d")
    for axes, pick in ((left, "spread"), (right, "largest")):
        axes.plot(widths, [getattr(raw[d], pick) for d in widths], "o-", color=plot.RED, ms=4, lw=1.6, label="q·k")
        axes.plot(
            widths, [getattr(scaled[d], pick) for d in widths], "s-", color=plot.BLUE, ms=4, lw=1.6, label="q·k/√d"
        )
        axes.set_xscale("log", base=2)
        axes.set_xlabel("width d")
    left.set_yscale("log", base=2)
    right.set_ylim(0, 1.03)
    plot.legend(left, loc="upper left")
    return Plot(
        name="spread",
        figure=figure,
        caption=f"Spread of the scores, and the mean of a query's largest weight over {KEYS} keys.",
        alt="Two line plots against the width. Unscaled scores spread as the square root of the width and the largest "
        "weight rises to one; scaled, both stay level.",
    )


def gradient_plot(raw: dict[int, Scores], scaled: dict[int, Scores]) -> Plot:
    figure, (axes,) = plot.panels(1, titles=["Norm of the softmax's Jacobian"], height=3.2)
    widths = list(raw)
    floor = 1e-12
    for norms, colour, mark, label in ((raw, plot.RED, "o", "q·k"), (scaled, plot.BLUE, "s", "q·k/√d")):
        low, middle, high = ([max(norms[d].jacobian[i], floor) for d in widths] for i in range(3))
        plot.band(axes, widths, low, high, colour)
        axes.plot(widths, middle, f"{mark}-", color=colour, ms=4, lw=1.6, label=f"{label}, median and quartiles")
        if norms is raw:
            mean = [norms[d].average for d in widths]
            axes.plot(widths, mean, color=colour, lw=1.2, linestyle=(0, (2, 2)), label=f"{label}, mean")
    axes.set(xscale="log", yscale="log", xlabel="width d")
    axes.set_xscale("log", base=2)
    plot.legend(axes, loc="lower left")
    return Plot(
        name="gradient",
        figure=figure,
        caption="What a gradient is multiplied by on its way from the weights to the scores.",
        alt="Line plot: the Jacobian's norm without scaling rises a little, then its median falls steeply with the "
        "width; with scaling it stays level.",
    )


def diagonal_plot(diagonal: dict[tuple[int, int], Diagonal], widths: list[int]) -> Plot:
    n = LENGTHS[1]
    figure, (axes,) = plot.panels(1, titles=[f"The diagonal's share of a row of R = s sᵀ, n = {n}"], height=3.2)
    lines = [
        ("softmax", plot.RED, "o", "softmax(s sᵀ)"),
        ("absolute", plot.ORANGE, "^", "|s sᵀ|"),
        ("scaled", plot.BLUE, "s", "softmax(s sᵀ/√d)"),
        ("tied", plot.PINK, "v", "one projection for both"),
        ("projected", plot.GREEN, "D", "two projections"),
    ]
    for pick, colour, mark, label in lines:
        shares = [getattr(diagonal[d, n], pick) for d in widths]
        axes.plot(widths, shares, f"{mark}-", color=colour, ms=4, lw=1.6, label=label)
    axes.axhline(1 / n, color=plot.GREY, linestyle=(0, (2, 2)), linewidth=1, label="even")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="width d", ylim=(0, 1.03))
    plot.legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return Plot(
        name="diagonal",
        figure=figure,
        caption="How much of each row a position keeps for itself.",
        alt="Line plot: the diagonal's share of raw and of scaled self-attention rises to one with the width; with two "
        "random projections it stays at the even share.",
    )
