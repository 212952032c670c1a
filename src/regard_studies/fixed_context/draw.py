"""The tables and the plot of translations by the length of their source."""

from collections.abc import Mapping, Sequence

from regard.inspection import Cell, plot
from regard_corpora import BINS, LONGEST
from regard_studies.fixed_context.measure import Figures, Lengths, mean
from regard_studies.page import Plot, Table

__all__ = ["CELLS", "COLOURS", "KINDS", "bleu_table", "exact_table", "label_of", "length_plot", "rows_of", "span"]

CELLS = {"rnn": "tanh RNN", "gru": "GRU", "lstm": "LSTM"}
KINDS = {"rnn": "fixed context", "rnnsearch": "attention"}
COLOURS = {"rnn": plot.ORANGE, "gru": plot.BLUE, "lstm": plot.GREEN}


def label_of(name: str) -> str:
    kind, cell = name.split("-")
    return f"{CELLS[cell]}, {KINDS[kind]}"


def rows_of(figures: Mapping[str, Sequence[Figures]], key: str) -> list[list[Cell]]:
    return [[label_of(name), *mean(each, key)] for name, each in figures.items()]


def exact_table(figures: Mapping[str, Sequence[Figures]], counted: Sequence[int], lengths: Lengths) -> Table:
    return Table(
        caption="Translated exactly, %, by source words",
        columns=["system", *map(span, lengths.limits), "all"],
        rows=[["sentences", *counted, sum(counted)], *rows_of(figures, "exact")],
        formats=["", *[",.0f"] * (len(counted) + 1)],
    )


def bleu_table(figures: Mapping[str, Sequence[Figures]], lengths: Lengths) -> Table:
    rows = rows_of(figures, "bleu")
    return Table(
        caption="BLEU, by source words",
        columns=["system", *map(span, lengths.limits), "all", "seconds of training"],
        rows=[[*row, mean(each, "seconds")[0]] for row, each in zip(rows, figures.values(), strict=True)],
        formats=["", *[".1f"] * (len(lengths.limits) + 1), ".0f"],
    )


def span(limits: tuple[int, int]) -> str:
    low, high = limits
    return f"{low}–{LONGEST if limits == BINS[-1] else high}"


def length_plot(figures: Mapping[str, Sequence[Figures]], counted: Sequence[int], lengths: Lengths) -> Plot:
    figure, axes = plot.panels(2, titles=["With a fixed context", "With attention"], height=3.2)
    filled = [i for i, count in enumerate(counted) if count]
    top = max(value for each in figures.values() for value in mean(each, "bleu"))
    for panel, kind in zip(axes, KINDS, strict=True):
        for cell in CELLS:
            values = mean(figures[f"{kind}-{cell}"], "bleu")
            panel.plot(
                filled, [values[i] for i in filled], color=COLOURS[cell], marker="o", markersize=4, label=CELLS[cell]
            )
        panel.set_xticks(filled, [span(lengths.limits[i]) for i in filled], rotation=30 * (len(filled) > 5))
        panel.set_ylim(0, 1.06 * top)
        panel.set_xlabel("source words")
    axes[0].set_ylabel("BLEU")
    plot.legend(axes[0], loc="upper right")
    return Plot(
        "length",
        figure,
        "BLEU by the length of the sentence.",
        "Two panels of three lines: BLEU against the number of words, with a fixed context and with attention.",
    )
