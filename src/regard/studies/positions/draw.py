"""The tables and the picture of what positions buy in training."""

import typing
from collections.abc import Mapping

from regard.inspection.draw import plot
from regard.inspection.draw.table import Cell
from regard.studies.page import Plot, Table
from regard.studies.translation import TranslationFigures

if typing.TYPE_CHECKING:
    from regard.studies.positions.training import LengthFigures

__all__ = ["LABELS", "further_plot", "further_table", "positions_table"]

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


def positions_table(found: Mapping[str, TranslationFigures]) -> Table:
    """What the translators do."""
    rows: list[list[Cell]] = [
        [
            LABELS[name],
            each.bleu.as_text(),
            each.perplexity.as_text(".2f"),
            each.parameters / 1e6,
            each.seconds.mean,
        ]
        for name, each in found.items()
    ]
    return Table(
        caption="Trained: translation by how positions are told",
        columns=["positions", "BLEU", "perplexity", "million parameters", "seconds of training"],
        rows=rows,
        formats=["", "", "", ".2f", ".0f"],
    )


def further_table(copied: Mapping[str, Mapping[float, "LengthFigures"]], most: int) -> Table:
    """What the copiers do, by length."""
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
    found: Mapping[str, TranslationFigures], copied: Mapping[str, Mapping[float, "LengthFigures"]], most: int
) -> Plot:
    """BLEU of each, and how far each copies."""
    titles = ["Translation", f"Copying, trained up to {most}"]
    figure, (left, right) = plot.panels(2, titles=titles, height=3.3)
    for row, (name, each) in enumerate(found.items()):
        colour, mark = STYLES[name]
        left.plot(each.bleu.values, [row] * len(each.bleu.values), mark, color=colour, ms=5)
    left.set_yticks(range(len(found)), labels=[LABELS[name] for name in found])
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
