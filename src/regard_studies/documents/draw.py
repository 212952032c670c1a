"""The tables and the plot of the study of documents."""

from collections.abc import Mapping

from regard.inspection import Cell, plot
from regard_studies.corpora.reviews import Reviews
from regard_studies.documents.measure import ClassifierFigures, chance_rates, length_quarters
from regard_studies.page import Plot, Table

__all__ = ["COLOURS", "NAMES", "accuracy_plot", "accuracy_table", "length_table", "pointed_table"]

NAMES = {
    "mean": "two levels, mean (HN-AVE)",
    "max": "two levels, maximum (HN-MAX)",
    "attention": "two levels, attention (HN-ATT)",
    "flat": "one level, attention",
}
COLOURS = {"mean": plot.ORANGE, "max": plot.PINK, "attention": plot.BLUE, "flat": plot.GREEN}
FiguresByTask = Mapping[str, Mapping[str, ClassifierFigures]]  # by task, then by system


def accuracy_table(tasks: Mapping[str, Reviews], figures: FiguresByTask) -> Table:
    rows: list[list[Cell]] = [
        [
            *([reviews.name] if len(tasks) > 1 else []),
            NAMES[name],
            each.accuracy.as_text(".2f"),
            each.f1.as_text(".2f"),
            each.parameters,
            each.seconds.mean,
        ]
        for task, reviews in tasks.items()
        for name, each in figures[task].items()
    ]
    columns = [
        *["task"] * (len(tasks) > 1),
        "system",
        "accuracy, %",
        "macro-F1, %",
        "parameters",
        "seconds of training",
    ]
    return Table("What is right of the test set", columns, rows, [""] * (len(columns) - 2) + [",d", ".0f"])


def length_table(reviews: Reviews, figures: Mapping[str, ClassifierFigures]) -> Table:
    groups = length_quarters(reviews.words)
    rows: list[list[Cell]] = [
        [NAMES[name], *(each.within(members).mean for _, members in groups)] for name, each in figures.items()
    ]
    return Table(
        f"Accuracy, %, by words of the document, a quarter of the test each: {reviews.name}",
        ["system", *(name for name, _ in groups)],
        rows,
        ["", *[".1f"] * len(groups)],
    )


def pointed_table(reviews: Reviews, figures: Mapping[str, ClassifierFigures]) -> Table:
    """Tabulate how often the largest weight is on a deciding word or sentence, which built-in reviews mark."""
    rows: list[list[Cell]] = [
        [NAMES[name], each.pointing.sentence.as_text(), each.pointing.word.as_text()]
        for name, each in figures.items()
        if each.pointing is not None
    ]
    sentence, word = chance_rates(reviews)
    return Table(
        "In how many documents what has the largest weight is among what decides, %",
        ["system", "sentence", "word"],
        [["anywhere, by chance", f"{sentence:.1f}", f"{word:.1f}"], *rows],
    )


def accuracy_plot(tasks: Mapping[str, Reviews], figures: FiguresByTask) -> Plot:
    titles = [reviews.name[0].upper() + reviews.name[1:] for reviews in tasks.values()]
    figure, axes = plot.panels(len(tasks), titles=titles, height=3.2, width=7.2 if len(tasks) > 1 else 4.8)
    for panel, (task, reviews) in zip(axes, tasks.items(), strict=True):
        groups = length_quarters(reviews.words)
        positions = range(len(groups))
        for shift, (name, each) in enumerate(figures[task].items()):
            own = [each.within(members) for _, members in groups]
            panel.errorbar(
                [place + 0.06 * (shift - 1.5) for place in positions],
                [spread.mean for spread in own],
                [spread.deviation for spread in own],
                color=COLOURS[name],
                marker="o",
                markersize=4,
                linewidth=1.4,
                elinewidth=1.0,
                label=NAMES[name],
            )
        panel.set_xticks(positions, [name for name, _ in groups])
        panel.set_xlabel("words of the document")
        low, high = panel.get_ylim()
        panel.set_ylim(low - 0.4 * (high - low), high)  # room for the legend
    axes[0].set_ylabel("accuracy, %")
    plot.legend(axes[0], loc="lower left")
    return Plot(
        "length",
        figure,
        "Accuracy by the length of the document, a quarter of the test set each; bars: the deviation between seeds.",
        "A panel a task, with a line a system: accuracy over four groups of documents, from short to long.",
    )
