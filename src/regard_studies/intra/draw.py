"""The tables and the plot of the study of intra-attention."""

from collections.abc import Mapping, Sequence

import numpy as np

from regard.inspection import Cell, colours, plot
from regard_studies.corpora.sentences import Sentences
from regard_studies.documents.measure import ClassifierFigures
from regard_studies.intra.measure import DISTANCES, PLACES, Likelihood
from regard_studies.page import Plot, Table

__all__ = [
    "NAMES",
    "accuracy_table",
    "course_table",
    "distance_table",
    "perplexity_plot",
    "perplexity_table",
    "place_table",
]

NAMES = {"lstm": "LSTM", "wide": "LSTM, wider", "lstmn": "LSTMN"}
COLOURS = {"wide": plot.ORANGE, "lstmn": plot.BLUE}
LikelihoodByCorpus = Mapping[str, Mapping[str, Likelihood]]  # by corpus, then by system


def perplexity_table(corpora: Mapping[str, Sentences], figures: LikelihoodByCorpus) -> Table:
    rows: list[list[Cell]] = [
        [
            corpora[corpus].name,
            NAMES[name],
            each.perplexity().as_text(".2f"),
            each.perplexity(each.words).as_text(".2f"),
            each.parameters,
            each.seconds.mean,
        ]
        for corpus, systems in figures.items()
        for name, each in systems.items()
    ]
    columns = ["corpus", "system", "perplexity of a token", "of a word", "parameters", "seconds of training"]
    return Table("Language models: perplexity of the test set", columns, rows, ["", "", "", "", ",d", ".0f"])


def place_table(corpus: Sentences, systems: Mapping[str, Likelihood]) -> Table:
    filled = next(iter(systems.values())).filled
    rows: list[list[Cell]] = []
    for name, each in systems.items():
        own = each.nll.mean(1).sum(1) / np.maximum(each.tokens.sum(1), 1)
        rows.append([NAMES[name], *(float(np.exp(own[group])) for group in filled)])
    columns = ["system", *(span(group) for group in filled)]
    return Table(f"Perplexity by place in the sentence: {corpus.name}", columns, rows, ["", *[".2f"] * len(filled)])


def distance_table(corpora: Mapping[str, Sentences], figures: Mapping[str, Sequence[Sequence[float]]]) -> Table:
    """Tabulate how far back the LSTMN looks in each corpus, and how far it would if it weighed all states alike."""
    rows: list[list[Cell]] = []
    for corpus, (own, even) in figures.items():
        rows += [[corpora[corpus].name, "LSTMN", *own], [corpora[corpus].name, "evenly", *even]]
    columns = [
        "corpus",
        "weights",
        *(f"{a} back" if a == b else f"{a}–{b}" if b < 200 else f"{a}+" for a, b in DISTANCES),
    ]
    return Table(
        "How far back it looks after the tenth token: % of the weight by distance",
        columns,
        rows,
        ["", "", *[".1f"] * 5],
    )


def course_table(corpus: Sentences, courses: Mapping[str, Mapping[int, float]]) -> Table:
    steps = list(next(iter(courses.values())))
    rows: list[list[Cell]] = [[NAMES[name], *(each.get(step) for step in steps)] for name, each in courses.items()]
    columns = ["system", *(f"{step:,}" for step in steps)]
    caption = f"Perplexity of held-out text by the number of updates: {corpus.name.split(', ')[0]}"
    return Table(caption, columns, rows, ["", *[".2f"] * len(steps)])


def accuracy_table(corpus: str, systems: Mapping[str, ClassifierFigures]) -> Table:
    rows: list[list[Cell]] = [
        [NAMES[name], each.accuracy.as_text(".2f"), each.f1.as_text(".2f"), each.parameters, each.seconds.mean]
        for name, each in systems.items()
    ]
    columns = ["system", "accuracy, %", "macro-F1, %", "parameters", "seconds of training"]
    return Table(f"Classifiers: what is right of the test set, {corpus}", columns, rows, ["", "", "", ",d", ".0f"])


def perplexity_plot(corpora: Mapping[str, Sentences], figures: LikelihoodByCorpus) -> Plot:
    titles = [corpora[corpus].name.rsplit(",", 1)[0] for corpus in figures]
    titles = [title[0].upper() + title[1:] for title in titles]
    figure, axes = plot.panels(len(figures), titles=titles, height=3.2, width=7.2 if len(figures) > 1 else 4.8)
    for panel, systems in zip(axes, figures.values(), strict=True):
        filled = systems["lstm"].filled
        positions = range(len(filled))
        panel.axhline(0, color=colours.FAINT, linewidth=1.0)
        for shift, (name, colour) in enumerate(COLOURS.items()):
            gains = [systems[name].gain(systems["lstm"], group) for group in filled]
            panel.errorbar(
                [place + 0.08 * (shift - 0.5) for place in positions],
                [100 * (1 - np.exp(-gain.mean)) for gain in gains],
                [200 * gain.error for gain in gains],
                color=colour,
                marker="o",
                markersize=4,
                linewidth=1.4,
                elinewidth=1.0,
                label=NAMES[name],
            )
        panel.set_xticks(positions, [span(group) for group in filled])
        panel.set_xlabel("place in the sentence, in tokens")
        low, high = panel.get_ylim()
        panel.set_ylim(low - 0.2 * (high - low), high)  # room for the legend
    axes[0].set_ylabel("less perplexity than the LSTM, %")
    plot.legend(axes[0], loc="lower left")
    return Plot(
        "places",
        figure,
        "How much perplexity is less than that of the LSTM, by place in the sentence; above the line is better. Bars: "
        "two standard errors.",
        "A panel a corpus, with a line for the wider LSTM and one for the LSTMN: the gain over the LSTM by place.",
    )


def span(group: int) -> str:
    first, last = PLACES[group]
    return f"{first}–{last}" if last < 200 else f"{first}+"
