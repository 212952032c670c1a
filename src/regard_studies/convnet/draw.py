"""The tables and the plot of the study of self-attention in a ConvNet."""

from collections.abc import Mapping, Sequence

from regard.inspection import Cell, plot
from regard_corpora import Pictured
from regard_studies.convnet.measure import BINS, ShapeAttention
from regard_studies.page import Plot, Table
from regard_studies.seed_statistics import SeedStatistics

__all__ = ["SYSTEMS", "accuracy_plot", "accuracy_table", "distance_table", "looks_table"]

SYSTEMS = {
    "attention": "self-attention",
    "none": "without it",
    "wider": "wider without it",
    "deeper": "deeper without it",
}
SHAPES = ("the ringed shape", "the one of its colour", "the third")
COLOURS = {"attention": plot.BLUE, "none": plot.GREY, "wider": plot.ORANGE, "deeper": plot.GREEN}
Figures = Mapping[str, SeedStatistics]


def accuracy_table(results: Mapping[str, Figures]) -> Table:
    """Tabulate the accuracy of each system."""
    return Table(
        caption="Answered right, %",
        columns=["network", "all", "the third of another size", "parameters", "reach, pixels", "γ", "seconds"],
        rows=[
            [
                SYSTEMS[name],
                figures["accuracy"].as_text(),
                figures["differing"].as_text(),
                int(figures["parameters"].mean),
                "all" if name == "attention" else f"{figures['reach'].mean:.0f}",
                figures["gamma"].as_text(".2f") if name == "attention" else None,
                figures["seconds"].as_text(".0f"),
            ]
            for name, figures in results.items()
        ],
    )


def distance_table(results: Mapping[str, Figures], tests: Sequence[Pictured]) -> Table:
    """Tabulate the accuracy by how far apart the two shapes are."""
    from regard_studies.convnet.measure import distance

    counts = [sum(low <= distance(test) < high for test in tests) for low, high in BINS]
    return Table(
        caption="Answered right, %, by the distance of the two shapes in hundredths of the picture",
        columns=["network", *map(span, BINS)],
        rows=[
            ["scenes", *map(str, counts)],
            *(
                [SYSTEMS[name], *(figures[f"distance-{i}"].as_text() for i in range(len(BINS)))]
                for name, figures in results.items()
            ),
        ],
    )


def looks_table(looks: ShapeAttention) -> Table:
    """Tabulate which shapes look at which."""
    rows: list[list[Cell]] = [[name, *share] for name, share in zip(SHAPES, looks.share, strict=True)]
    return Table(
        caption="Where the places of a shape look, % of their attention",
        columns=["from", *(f"to {name}" for name in SHAPES), "to the ground"],
        rows=[*rows, ["share of all places", *looks.chance]],
        formats=["", *[".1f"] * 4],
    )


def span(limits: tuple[int, int]) -> str:
    low, high = limits
    return f"{low}–{high - 1}" if high <= 100 else f"{low} and more"


def accuracy_plot(results: Mapping[str, Figures], looks: ShapeAttention) -> Plot:
    """Draw accuracy by distance, and which shapes look at which."""
    figure, (left, right) = plot.panels(2, titles=["Answered right, %", "The ringed shape looks at, %"], height=3.0)
    at = range(len(BINS))
    for name, figures in results.items():
        each = [figures[f"distance-{i}"] for i in at]
        left.errorbar(
            at,
            [one.mean for one in each],
            yerr=[one.deviation for one in each] if len(each[0].values) > 1 else None,
            color=COLOURS[name],
            marker="o",
            markersize=4,
            capsize=2,
            label=SYSTEMS[name],
        )
    left.axhline(75, color=plot.GREY, linewidth=0.8, linestyle="--")
    left.set_ylim(45, 102)
    left.set_xticks(at, [span(each) for each in BINS])
    left.set_xlim(-0.3, len(BINS) - 0.7)
    left.set_xlabel("distance, hundredths of the picture")
    plot.legend(left, loc="lower left")
    names = ["itself", "its colour", "the third", "the ground"]
    right.bar(range(4), looks.share[0], color=plot.BLUE, width=0.38, align="edge", label="attention")
    right.bar(range(4), looks.chance, color=plot.GREY, width=-0.38, align="edge", label="share of places")
    right.set_xticks(range(4), names)
    right.grid(visible=False, axis="x")
    plot.legend(right, loc="upper left")
    return Plot(
        "distance",
        figure,
        "Left: right answers by the distance of the two shapes; the dashed line is what counting sizes gives. Right: "
        "where the places of the ringed shape look, beside how many of all places are there.",
        "Left, a line a network over three distances. Right, bars: the attention of the ringed shape, and chance.",
    )
