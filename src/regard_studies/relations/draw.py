"""The tables and the plot of `relations`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from regard.inspection import plot
from regard_studies.page import Plot, Table

if TYPE_CHECKING:
    from regard_studies.relations.measure import RelationFigures

__all__ = ["relation_plot", "relation_table", "training_table"]


def relation_table(where: str, figures: "RelationFigures") -> Table:
    """Tabulate, by relation, the best head, the best fixed distance, and the best head before training."""
    return Table(
        caption=f"Words whose most attended word is their grammatical head, %: {where}",
        columns=[
            "words that are",
            "words",
            "best distance",
            "its share",
            "best head",
            "its share, trained",
            "untrained",
        ],
        rows=[
            [
                group,
                figures.words[group],
                int(figures.distance[group].which),
                figures.distance[group].share,
                figures.which[group],
                figures.trained[group].as_text(".1f"),
                figures.untrained[group].as_text(".1f"),
            ]
            for group in figures.groups
        ],
        formats=["", ",d", "+d", ".1f", "", "", ""],
        note="A head is told as layer.head, both from 1, of the first seed; untrained has a best head of its own.",
    )


def training_table(figures: Mapping[str, "RelationFigures"], steps: int, quarters: int) -> Table:
    """Tabulate how the shares change over the training."""
    at = [steps * number // quarters for number in range(quarters + 1)]
    return Table(
        caption="Mean over the relations of their best heads, %, by the number of updates",
        columns=["side", *(f"{step:,}" for step in at), "one head for all"],
        rows=[[side, *(each.as_text() for each in one.course), one.single.as_text()] for side, one in figures.items()],
        formats=[""] * (quarters + 3),
    )


def relation_plot(encoder: "RelationFigures", decoder: "RelationFigures", steps: int, quarters: int) -> Plot:
    """Draw the relations of the encoder, and the course of the training."""
    titles = ["Words that look at their head, encoder, %", "Mean of the best heads, %"]
    figure, (bars, course) = plot.panels(2, titles=titles, height=4.0)
    groups = list(reversed(encoder.groups))
    for number, group in enumerate(groups):
        bars.plot(
            [encoder.distance[group].share, encoder.trained[group].mean], [number] * 2, color=plot.GREY, linewidth=0.8
        )
    positions = range(len(groups))
    marks = {
        "best fixed distance": ([encoder.distance[group].share for group in groups], plot.GREY, "|"),
        "best head, untrained": ([encoder.untrained[group].mean for group in groups], plot.ORANGE, "x"),
        "best head, trained": ([encoder.trained[group].mean for group in groups], plot.BLUE, "o"),
    }
    for label, (values, colour, mark) in marks.items():
        size = 9 if mark == "|" else 5
        bars.plot(values, positions, color=colour, marker=mark, markersize=size, linestyle="", label=label)
    bars.set_yticks(list(positions), groups)
    bars.set_xlim(0, 103)
    plot.legend(bars, loc="upper center", bbox_to_anchor=(0.3, -0.08))
    at = [steps * number // quarters for number in range(quarters + 1)]
    for label, one, colour in (("encoder", encoder, plot.BLUE), ("decoder", decoder, plot.GREEN)):
        course.plot(at, [each.mean for each in one.course], color=colour, marker="o", markersize=3.5, label=label)
    course.set_ylim(0, 103)
    course.set_xlabel("updates")
    plot.legend(course, loc="lower right")
    return Plot(
        "relations",
        figure,
        "Left: by what a word is to its head. Right: a head for each relation, as the training goes on.",
        "Left, a row a relation with three marks: best fixed distance, best untrained head, best trained head. Right, "
        "two lines: the mean of the best heads of encoder and decoder against the updates.",
    )
