"""The tables and the picture of what positions buy in training."""

import typing
from collections.abc import Mapping

import torch
from torch import Tensor

from regard.inspection import Cell, colours, plot
from regard_studies.page import Plot, Table
from regard_studies.positions.measure import product_by_distance
from regard_studies.translation import TranslationFigures

if typing.TYPE_CHECKING:
    from regard_studies.positions.measure import LengthFigures

__all__ = [
    "LABELS",
    "ROUNDING",
    "TABLE",
    "blind_table",
    "error_plot",
    "further_plot",
    "further_table",
    "median",
    "positions_table",
    "seeing_table",
    "wave_plot",
    "wave_table",
]

ROUNDING = 1e-10  # in float64; what is above is not rounding
TABLE = 128  # positions and width of the table that is drawn

LABELS = {
    "none": "none",
    "sinusoidal": "sinusoidal, added",
    "sinusoidal-joined": "sinusoidal, concatenated",
    "learned": "learned, added",
    "learned-joined": "learned, concatenated",
    "rotary": "rotary",
    "alibi": "ALiBi",
}
STYLES: dict[str, tuple[str, str]] = {
    "none": (plot.GREY, "o"),
    "sinusoidal": (plot.BLUE, "s"),
    "sinusoidal-joined": (plot.SKY, "s"),
    "learned": (plot.ORANGE, "^"),
    "learned-joined": (plot.RED, "^"),
    "rotary": (plot.PINK, "v"),
    "alibi": (plot.GREEN, "D"),
}


def positions_table(figures: Mapping[str, TranslationFigures]) -> Table:
    """Tabulate the translators' figures."""
    rows: list[list[Cell]] = [
        [
            LABELS[name],
            each.bleu.as_text(),
            each.perplexity.as_text(".2f"),
            each.parameters / 1e6,
            each.seconds.mean,
        ]
        for name, each in figures.items()
    ]
    return Table(
        caption="Trained: translation by how positions are told",
        columns=["positions", "BLEU", "perplexity", "million parameters", "seconds of training"],
        rows=rows,
        formats=["", "", "", ".2f", ".0f"],
    )


def further_table(copied: Mapping[str, Mapping[float, "LengthFigures"]], most: int) -> Table:
    """Tabulate how far the copiers get, by length."""
    times = list(next(iter(copied.values())))
    sizes = [round(most * each) for each in times]
    rows: list[list[Cell]] = [
        [
            LABELS[name],
            *(each[time].prefix.as_text(".0f") for time in times),
            *(each[time].exact.as_text(".0f") for time in times),
            *(each[time].perplexity.as_text(".3g") for time in times),
        ]
        for name, each in copied.items()
    ]
    return Table(
        caption=f"Trained: copying, after sequences of at most {most} symbols",
        columns=[
            "positions",
            *(f"{size}: right, %" for size in sizes),
            *(f"{size}: exact, %" for size in sizes),
            *(f"{size}: perplexity" for size in sizes),
        ],
        rows=rows,
        note="Right: symbols before the first mistake.",
    )


def further_plot(
    figures: Mapping[str, TranslationFigures], copied: Mapping[str, Mapping[float, "LengthFigures"]], most: int
) -> Plot:
    """Draw the BLEU of each system, and how far each copies."""
    titles = ["Translation", f"Copying, trained up to {most}"]
    figure, (left, right) = plot.panels(2, titles=titles, height=3.3)
    for row, (name, each) in enumerate(figures.items()):
        colour, mark = STYLES[name]
        left.plot(each.bleu.values, [row] * len(each.bleu.values), mark, color=colour, ms=5)
    left.set_yticks(range(len(figures)), labels=[LABELS[name] for name in figures])
    left.invert_yaxis()
    left.set_xlabel("BLEU")
    for name, by_length in copied.items():
        colour, mark = STYLES[name]
        sizes = [round(most * time) for time in by_length]
        means = [each.prefix.mean for each in by_length.values()]
        right.plot(sizes, means, f"{mark}-", color=colour, ms=5, lw=1.4)
        right.set_xticks(sizes)
    right.set(xlabel="symbols", ylabel="% right before the first mistake", ylim=(0, 103))
    return Plot(
        "trained",
        figure,
        "Left: BLEU by how positions are told, a point a seed. Right: how much of a sequence is copied before the "
        "first mistake, by its length, in the same colours and marks.",
        "Left, a dot plot of BLEU for each kind of positions; right, lines that fall with the length of the sequence, "
        "from the longest that was trained on to twice as long.",
    )


def blind_table(blind: dict[str, list[float]], single: dict[str, float]) -> Table:
    return Table(
        caption="Without positions: ‖f(Px) − P f(x)‖/‖f(x)‖",
        columns=["attention", "median", "largest", "largest, float32"],
        rows=[[name, median(errors), max(errors), single[name]] for name, errors in blind.items()],
        formats=["", ".1e", ".1e", ".1e"],
    )


def seeing_table(seeing: dict[str, list[float]]) -> Table:
    return Table(
        caption="With something that tells positions apart",
        columns=["attention", "smallest", "median", "largest"],
        rows=[[name, min(errors), median(errors), max(errors)] for name, errors in seeing.items()],
        formats=["", ".3f", ".3f", ".3f"],
        note="Two unrelated outputs of the same size would be about 1.41 apart.",
    )


def wave_table(waves: Tensor) -> Table:
    curve = product_by_distance(waves)
    return Table(
        caption=f"Sinusoidal codes of width {TABLE}: dot product against distance",
        columns=["distance", "dot product (1 at 0)"],
        rows=[[k, curve[k]] for k in (0, 1, 2, 4, 8, 16, 32, 64)],
        formats=["d", ".3f"],
    )


def error_plot(blind: dict[str, list[float]], seeing: dict[str, list[float]]) -> Plot:
    figure, (axes,) = plot.panels(1, titles=["‖f(Px) − P f(x)‖/‖f(x)‖, float64"], height=4.6)
    names = [*blind, *seeing]
    for row, name in enumerate(names):
        errors = blind.get(name) or seeing[name]
        colour = plot.BLUE if name in blind else plot.RED
        visible = [max(error, 1e-18) for error in errors]
        axes.plot([min(visible), max(visible)], [row, row], color=colour, lw=1.2, alpha=0.5)
        axes.plot(median(visible), row, "o" if name in blind else "s", color=colour, ms=5)
    axes.axhline(len(blind) - 0.5, color=colours.FAINT, lw=0.6)
    axes.text(1e-8, len(blind) - 0.7, "nothing tells positions apart", fontsize=8, color=colours.FAINT, ha="center")
    axes.text(1e-8, len(blind) - 0.1, "something does", fontsize=8, color=colours.FAINT, ha="center")
    axes.set_yticks(range(len(names)), labels=names)
    axes.tick_params(axis="y", colors=colours.INK, length=0)
    axes.set(xscale="log", xlim=(2e-19, 10))
    axes.invert_yaxis()
    return Plot(
        name="equivariance",
        figure=figure,
        caption="How far a permuted input's output is from the permuted output: medians, and from smallest to largest.",
        alt="Dot plot: attention without positions has errors at rounding level, near ten to the minus sixteen; with "
        "positions, masks or windows between a hundredth and one.",
    )


def wave_plot(waves: Tensor) -> Plot:
    titles = ["Sinusoidal table", "Dot product by distance"]
    figure, (left, right) = plot.panels(2, titles=titles, height=3.2)
    scale = colours.own_scale(-1.0, 1.0)
    left.imshow(
        waves.numpy(), aspect="auto", cmap=scale.colours, vmin=scale.low, vmax=scale.high, interpolation="nearest"
    )
    colours.draw_bar(figure, scale, [left], (3.0, 2.4))
    left.grid(visible=False)
    left.set(xlabel="dimension", ylabel="position")
    curve = product_by_distance(waves)
    right.plot(range(TABLE), curve, color=plot.BLUE, lw=1.6)
    right.set(xlabel="distance", ylim=(0, 1.03))
    return Plot(
        name="sinusoidal",
        figure=figure,
        caption=f"Left: the codes of {TABLE} positions, orange for −1, blue for 1. Right: how alike two codes are, by "
        "their distance; the same at every place in the sentence.",
        alt="Left, the striped table of sines and cosines; right, a curve that falls from one and "
        "levels off in ripples.",
    )


def median(values: list[float]) -> float:
    return torch.tensor(values, dtype=torch.float64).median().item()
