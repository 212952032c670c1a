"""Tables and plots of `alignment`."""

from collections.abc import Mapping, Sequence

from regard.inspection import Cell, colours, plot, selection
from regard_studies.alignment.measure import SystemFigures
from regard_studies.alignment.verdicts import LABELS
from regard_studies.page import Plot, Table
from regard_studies.seed_statistics import SeedStatistics

__all__ = ["by_layer", "curves", "heat_map", "mechanism_table", "step_table"]

COLOURS = {
    "rnnsearch": plot.ORANGE,
    "luong-global": plot.BLUE,
    "luong-local": plot.GREEN,
    "transformer": plot.PINK,
}
WORDS = {0: "the word written", 1: "the word read"}


def mechanism_table(figures: Mapping[str, SystemFigures], diagonal: float) -> Table:
    """Tabulate the systems, one per row."""
    several = any(len(each.bleu.values) > 1 for each in figures.values())

    def cell(value: SeedStatistics, style: str = ".1f") -> Cell:
        return value.as_text(style) if several else value.mean

    rows: list[list[Cell]] = [
        [
            LABELS[name],
            cell(each.written_aer),
            cell(each.read_aer),
            cell(each.selected_aer),
            cell(each.bleu),
            cell(each.perplexity, ".2f"),
            cell(each.seconds, ".0f"),
        ]
        for name, each in figures.items()
    ]
    rows.append(["along the diagonal", f"{diagonal:.1f}" if several else diagonal, *[None] * 5])
    return Table(
        caption="AER by mechanism, %, and what the systems are worth as translators",
        columns=["attention", "written", "read", "best of all, held out", "BLEU", "perplexity", "seconds of training"],
        rows=rows,
        formats=["", ".1f", ".1f", ".1f", ".1f", ".2f", ".0f"],
        note="Best of all: the head, or the mean of a layer's heads, and the word, that are best on the other half of "
        "the pairs.",
    )


def layers_of(readings: Sequence[selection.Reading], offset: int) -> list[list[float]]:
    """List the AER in percent, a row per layer: its heads, and then their mean."""
    views = list(dict.fromkeys(each.view for each in readings))
    return [[100 * each.aer for each in readings if each.view == view and each.offset == offset] for view in views]


def by_layer(readings: Sequence[selection.Reading], offset: int) -> Table:
    """Tabulate the AER by layer (rows) and head (columns)."""
    rates = layers_of(readings, offset)
    heads = len(rates[0]) - 1
    return Table(
        caption=f"The Transformer's heads, AER of {WORDS[offset]}, %",
        columns=["layer", *(f"head {head + 1}" for head in range(heads)), "mean of the heads"],
        rows=[[str(layer), *row] for layer, row in enumerate(rates, 1)],
        formats=["", *[".1f"] * (heads + 1)],
        note="The mean is of the weights, and not of the rates.",
    )


def step_table(figures: Mapping[str, SystemFigures]) -> Table:
    """Tabulate the checkpoints, one per row."""
    steps = [point[0] for point in next(iter(figures.values())).curve]
    rows: list[list[Cell]] = []
    for number, step in enumerate(steps):
        rows.append([f"{step:,}", *(value for each in figures.values() for value in each.curve[number][1:])])
    return Table(
        caption="As training goes on: BLEU, and AER of the word written or read, whichever is lower, %",
        columns=["step", *(f"{LABELS[name]}: {what}" for name in figures for what in ("BLEU", "AER"))],
        rows=rows,
        formats=["", *[".1f"] * (2 * len(figures))],
    )


def heat_map(readings: Sequence[selection.Reading]) -> Plot:
    """Draw heat maps of layers by heads, for the word written and the word read."""
    rates = {offset: layers_of(readings, offset) for offset in WORDS}
    high = max(value for each in rates.values() for row in each for value in row)
    low = min(value for each in rates.values() for row in each for value in row)
    figure, axes = plot.panels(2, titles=[f"AER of {word}, %" for word in WORDS.values()], height=2.6)
    for panel, grid in zip(axes, rates.values(), strict=True):
        panel.imshow(grid, cmap=colours.SEQUENTIAL.reversed(), vmin=low, vmax=high + 0.15 * (high - low), aspect="auto")
        panel.grid(False)
        for spine in panel.spines.values():
            spine.set_visible(False)
        for y, row in enumerate(grid):
            for x, value in enumerate(row):
                ink = "#ffffff" if value < low + 0.45 * (high - low) else colours.INK
                panel.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=8, color=ink)
        panel.axvline(len(grid[0]) - 1.5, color=colours.FAINT, linewidth=0.8)
        panel.set_xticks(range(len(grid[0])), [*map(str, range(1, len(grid[0]))), "mean"])
        panel.set_yticks(range(len(grid)), [str(layer) for layer in range(1, len(grid) + 1)])
        panel.set_xlabel("head")
    axes[0].set_ylabel("layer")
    scale = colours.Scale(colours.SEQUENTIAL.reversed(), low, high + 0.15 * (high - low), "AER, %")
    colours.draw_bar(figure, scale, axes, (6.5, 1.8))
    return Plot(
        "heads",
        figure,
        "The darker, the better a head aligns.",
        "Two grids of layers by heads, with the alignment error rate of each head and of each layer's mean.",
    )


def curves(figures: Mapping[str, SystemFigures], diagonal: float) -> Plot:
    """Draw BLEU and AER by training step."""
    figure, axes = plot.panels(2, titles=["BLEU", "AER, %"], height=3.2)
    for name, each in figures.items():
        steps = [point[0] for point in each.curve]
        for panel, place in zip(axes, (1, 2), strict=True):
            values = [point[place] for point in each.curve]
            panel.plot(steps, values, "o-", color=COLOURS[name], markersize=4, label=LABELS[name])
    axes[1].axhline(diagonal, color=plot.GREY, linewidth=0.8, linestyle=":")
    for panel in axes:
        panel.set_xlabel("updates")
        panel.set_ylim(bottom=0)
    plot.legend(axes[0], loc="best")
    return Plot(
        "training",
        figure,
        "BLEU of validation sentences and AER as training goes on; the dotted line is the diagonal.",
        "Two panels against training steps: BLEU rises and alignment error falls in every system.",
    )
