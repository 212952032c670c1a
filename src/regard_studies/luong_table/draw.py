"""Tables and plots of `luong_table`."""

from collections.abc import Mapping, Sequence

from regard.inspection import Cell, plot
from regard_studies.page import Plot, Table
from regard_studies.seed_statistics import SeedStatistics

__all__ = ["LABELS", "Figures", "best_of", "list_figures", "paper_table", "quality_plot", "system_table"]

Figures = Mapping[
    str, SeedStatistics
]  # perplexity, bleu, written and read (AER, %), aer (the lower of the two), seconds

LABELS = {
    "global-location": "global (location)",
    "global-dot": "global (dot)",
    "global-general": "global (general)",
    "global-concat": "global (concat)",
    "local-m-dot": "local-m (dot)",
    "local-m-general": "local-m (general)",
    "local-p-dot": "local-p (dot)",
    "local-p-general": "local-p (general)",
    "unfed-global-dot": "global (dot), not fed on",
    "unfed-global-general": "global (general), not fed on",
    "unfed-local-p-general": "local-p (general), not fed on",
}
# Table 4, BLEU before unknown words are replaced, and table 6.
PAPER: dict[str, tuple[str, float | None, int | None]] = {
    "global-location": ("6.4", 18.1, 39),
    "global-dot": ("6.1", 18.6, None),
    "global-general": ("6.1", 17.3, None),
    "global-concat": ("6.7", None, None),
    "local-m-dot": ("> 7.0", None, None),
    "local-m-general": ("6.2", 18.6, 34),
    "local-p-dot": ("6.6", 18.0, None),
    "local-p-general": ("5.9", 19.0, 36),
}
COLOURS = {"global": plot.BLUE, "local-m": plot.ORANGE, "local-p": plot.GREEN, "unfed": plot.GREY}


def list_figures(figures: Mapping[str, Figures], names: Sequence[str], key: str, style: str = ".1f") -> str:
    """Describe a figure of several systems in words."""
    return ", ".join(f"{LABELS[name]} {figures[name][key].as_text(style)}" for name in names)


def best_of(figures: Mapping[str, Figures], names: Sequence[str]) -> str:
    """Describe the lowest perplexity and the highest BLEU of several systems in words."""
    sure = min(names, key=lambda name: figures[name]["perplexity"].mean)
    good = max(names, key=lambda name: figures[name]["bleu"].mean)
    perplexity, bleu = list_figures(figures, [sure], "perplexity", ".2f"), list_figures(figures, [good], "bleu")
    return f"perplexity, {perplexity}; BLEU, {bleu}"


def system_table(figures: Mapping[str, Figures]) -> Table:
    """Tabulate the figures of each system."""
    several = any(len(spread.values) > 1 for each in figures.values() for spread in each.values())

    def cell(value: SeedStatistics, style: str) -> Cell:
        return value.as_text(style) if several else value.mean

    styles = {"perplexity": ".2f", "bleu": ".1f", "written": ".1f", "read": ".1f", "seconds": ".0f"}
    return Table(
        caption="Every system: perplexity, BLEU, and AER of the word a step writes and of the word it reads, %",
        columns=["attention", "perplexity", "BLEU", "AER, written", "AER, read", "seconds of training"],
        rows=[
            [LABELS[name], *(cell(each[key], style) for key, style in styles.items())] for name, each in figures.items()
        ],
        formats=["", *styles.values()],
    )


def paper_table() -> Table:
    """Tabulate the figures of Luong's paper."""
    return Table(
        caption="The paper's figures, English to German, WMT 2014",
        columns=["attention", "perplexity", "BLEU", "AER, %"],
        rows=[[LABELS[name], *each] for name, each in PAPER.items()],
        formats=["", "", ".1f", "d"],
        note="BLEU before unknown words are replaced. Perplexity of concat: a footnote of section 5.3. AER: table 6, "
        "where the Berkeley aligner has 32. Input feeding (table 1): global (location) without it 7.3 and 16.8.",
    )


def quality_plot(figures: Mapping[str, Figures]) -> Plot:
    """Draw BLEU and AER of every system, a bar each."""
    figure, axes = plot.panels(2, titles=["BLEU", "AER, %: ● written, ○ read"], height=3.8)
    names = list(figures)[::-1]
    for place, name in enumerate(names):
        colour = COLOURS[next(key for key in COLOURS if name.startswith(key))]
        each = figures[name]
        axes[0].plot(each["bleu"].values, [place] * len(each["bleu"].values), "o", color=colour, markersize=6)
        for key, face in (("written", colour), ("read", "none")):
            values = each[key].values
            axes[1].plot(
                values, [place] * len(values), "o", color=colour, markerfacecolor=face, markersize=6, linestyle="none"
            )
    axes[0].set_yticks(range(len(names)), [LABELS[name] for name in names])
    axes[1].set_yticks(range(len(names)), [""] * len(names))
    return Plot(
        "systems",
        figure,
        "Blue: global; orange: a window that moves on; green: one that is predicted; grey: not fed on. A mark a seed.",
        "Two panels with a row per system: its BLEU, and its alignment error rates by the word written and read.",
    )
