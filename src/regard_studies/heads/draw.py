"""The tables and pictures of the study of heads."""

import statistics
from collections.abc import Mapping, Sequence

from regard.inspection import Cell, colours, plot
from regard_studies.heads.head_ablation import KINDS, AblationLoss, attention_kind
from regard_studies.page import Plot, Table
from regard_studies.seed_statistics import SeedStatistics
from regard_studies.translation import TranslationFigures

__all__ = ["ablation_plot", "ablation_table", "heads_plot", "heads_table", "label_of", "loss_by_kind"]

COLOURS = {"encoder": plot.BLUE, "decoder": plot.GREEN, "cross": plot.RED}
# Table 3 of the paper, newstest2013: BLEU by heads (d_k = 512 / heads) and by d_k at 8 heads.
PAPER = {"heads-1": 24.9, "heads-4": 25.5, "heads-8": 25.8, "heads-16": 25.8, "heads-32": 25.4}


def label_of(name: str) -> str:
    """Describe a system in words."""
    kind, number = name.split("-")
    if kind == "heads":
        return "1 head" if number == "1" else f"{number} heads"
    return f"d_k = {number}" if kind == "depth" else f"{number} heads, sliced input"


def heads_table(figures: Mapping[str, TranslationFigures]) -> Table:
    """Tabulate every system."""
    rows: list[list[Cell]] = [
        [
            label_of(name),
            each.bleu.as_text(),
            each.perplexity.as_text(".2f"),
            each.parameters / 1e6,
            each.seconds.mean,
            PAPER.get(name),
        ]
        for name, each in figures.items()
    ]
    return Table(
        caption="Heads, their width, and what they see",
        columns=["system", "BLEU", "perplexity", "million parameters", "seconds of training", "BLEU in the paper"],
        rows=rows,
        formats=["", "", "", ".2f", ".0f", ".1f"],
        note="Systems named by d_k have 4 heads. The paper's figures are of newstest2013 and another size of model: "
        "only their differences compare.",
    )


def loss_by_kind(silenced: Sequence[AblationLoss]) -> dict[str, SeedStatistics]:
    """Average the loss without one head, for each kind of attention, a value per seed."""
    return {
        kind: SeedStatistics(
            tuple(
                statistics.fmean(loss for head, loss in each.heads.items() if attention_kind(head) == kind)
                for each in silenced
            )
        )
        for kind in KINDS
    }


def layers_of(each: AblationLoss, kind: str) -> dict[int, list[float]]:
    """Group the losses of an attention's heads by layer, from 1."""
    by_layer: dict[int, list[float]] = {}
    for head, loss in each.heads.items():
        if attention_kind(head) == kind:
            by_layer.setdefault(int(head.module.split(".")[2]) + 1, []).append(loss)
    return by_layer


def ablation_table(silenced: Sequence[AblationLoss]) -> Table:
    """Tabulate the ablated heads by attention and layer; heads of all seeds together."""
    rows: list[list[Cell]] = []
    for kind, title in KINDS.items():
        for layer in layers_of(silenced[0], kind):
            losses = [loss for each in silenced for loss in layers_of(each, kind)[layer]]
            rows.append([title, layer, min(losses), statistics.median(losses), max(losses), statistics.fmean(losses)])
    return Table(
        caption="Log-probability a token that is lost without one head",
        columns=["attention", "layer", "least", "median", "most", "mean"],
        rows=rows,
        formats=["", "d", ".3f", ".3f", ".3f", ".3f"],
        note="A loss of 0.01 is a perplexity that is 1 % higher; below 0 the model does better without the head.",
    )


def heads_plot(figures: Mapping[str, TranslationFigures]) -> Plot:
    """Draw BLEU against the number of heads, and against d_k."""
    figure, (left, right) = plot.panels(2, titles=["Heads, with h · d_k kept", "d_k, with 4 heads"], height=3.1)
    width = {name: int(name.split("-")[1]) for name in figures}
    counts = [name for name in figures if name.startswith("heads-")]
    depths = [name for name in figures if name.startswith("depth-")]
    for axes, names, colour in ((left, counts, plot.BLUE), (right, depths, plot.GREEN)):
        for name in names:
            values = figures[name].bleu.values
            axes.plot([width[name]] * len(values), values, "o", color=colour, ms=4, alpha=0.5)
        axes.plot([width[name] for name in names], [figures[name].bleu.mean for name in names], color=colour, lw=1.6)
        axes.set_xscale("log", base=2)
        axes.set_xticks([width[name] for name in names], [str(width[name]) for name in names])
    sliced = next(name for name in figures if name.startswith("input-"))
    left.plot(width[sliced], figures[sliced].bleu.mean, "s", color=plot.RED, ms=5, label="sliced input")
    right.axhline(
        figures["heads-4"].bleu.mean, color=colours.FAINT, lw=1, linestyle=(0, (2, 2)), label="d_k = size / 4"
    )
    left.set(xlabel="heads", ylabel="BLEU")
    right.set(xlabel="d_k")
    for axes in (left, right):
        plot.legend(axes, loc="best")
    return Plot(
        "heads",
        figure,
        "BLEU by the number of heads at the same computation, and by the width of a head's queries and keys; a point a "
        "seed.",
        "Two line plots of BLEU: against the number of heads, and against the width of queries and keys.",
    )


def ablation_plot(silenced: Sequence[AblationLoss]) -> Plot:
    """Draw every head's loss, in order of size, and the loss without more and more heads."""
    titles = ["Lost without one head", "Lost without a share of all heads"]
    figure, (left, right) = plot.panels(2, titles=titles, height=3.1)
    ranked = sorted(
        ((loss, attention_kind(head)) for each in silenced for head, loss in each.heads.items()), reverse=True
    )
    for kind, title in KINDS.items():
        positions = [place for place, (_, own) in enumerate(ranked, 1) if own == kind]
        left.plot(positions, [ranked[place - 1][0] for place in positions], "o", color=COLOURS[kind], ms=3, label=title)
    for each in silenced:
        shares = [0.0, *each.shares]
        right.plot([100 * share for share in shares], [0.0, *each.shares.values()], "o-", color=plot.BLUE, ms=3, lw=1.4)
    left.set(xlabel="heads, by what is lost", ylabel="log-probability per token")
    right.set(xlabel="% of the heads silenced, least needed first")
    plot.legend(left, loc="upper right")
    return Plot(
        "silenced",
        figure,
        "Left: a point a head, of all seeds. Right: heads silenced together, a line a seed.",
        "Left, losses without single heads from the largest to the smallest, coloured by attention; right, a curve "
        "that rises as more heads are silenced.",
    )
