"""Building blocks of figures and pages: colours, colour scales and bars, line plots, tables, HTML documents, files.

A weight has the same colour in every picture: the scale is linear from 0 to 1, and lightness alone encodes the value,
in equal steps of CIE L*. `stretch` scales colours to the largest weight of the picture, and the colour bar states it.
Scores and differences are not shares and have their own scale, whose ends the bar shows. Nothing here uses pyplot, so
no global state keeps a figure.

Each study's page and each run's report is one HTML file of figures and tables of plain numbers. It needs no network
and no scripts, has a light and a dark theme, and suits printers and phones.
"""

# h heads · n queries · m keys
import io
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from torch import Tensor

from regard.errors import ArgumentError
from regard.evaluation import FEW, Lengths
from regard.inspection.draw.graph import STATIC
from regard.io import disk

INK = "#23272f"
FAINT = "#6b7280"
RULE = "#d5d9e0"
BLACK = "#010101"  # text on a light colour; it turns white when a dark page inverts that colour

# From white to dark in equal steps of lightness, readable with every kind of colour vision. The pages use the same
# colours (static/draw.js).
UP = ("#ffffff", "#d7e6f5", "#aecee8", "#87b6db", "#5c9dce", "#3f84bf", "#1f6bab", "#15538c", "#0b3c6f")
DOWN = ("#ffffff", "#fbe4d1", "#f6c8a4", "#f0ac78", "#e7904d", "#d8752e", "#c65b0c", "#aa4900", "#8a3b00")
SEQUENTIAL = LinearSegmentedColormap.from_list("regard", UP)
# For signed numbers, such as raw scores: blue above zero, orange below (no colour blindness confuses the two).
DIVERGING = LinearSegmentedColormap.from_list("regard-signed", [*reversed(DOWN), *UP[1:]])

ROUNDING = 1e-4  # rounding error by which a weight may exceed 1

# Okabe and Ito's colours, distinguishable with every kind of colour vision; the names are approximate.
BLUE, RED, GREEN, ORANGE, PINK, GREY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#8b93a1"
SKY = "#56b4e9"

# Maps each colour to the one that replaces it in a page's dark theme.
DARK = {
    INK: "#e4e7ec",
    FAINT: "#9aa4b2",
    RULE: "#3a414d",
    BLUE: "#4aa8e8",
    RED: "#f08242",
    GREEN: "#2fc79b",
    ORANGE: "#f0b53c",
    PINK: "#e09cc2",
    SKY: "#7cc7f2",
    GREY: "#8b93a2",
    BLACK: "#ffffff",
    "#ffffff": "#14171c",  # the background, and the text on a dark cell
}
STYLE = "\n" + (STATIC / "document.css").read_text(encoding="utf-8")
# One CSS variable per colour, redefined for the dark theme; the colour scales are inverted there instead.
LIGHT = " ".join(f"--c{colour[1:]}: {colour};" for colour in DARK)
PARTNERS = " ".join(f"--c{colour[1:]}: {partner};" for colour, partner in DARK.items())
SHADES = 'svg image, svg [id*="QuadMesh"] { filter: invert(.91) hue-rotate(180deg); }'
SHADES += ' svg [id*="shade-"] { filter: invert(.91) hue-rotate(180deg) }'  # boxes behind text
STYLE += f":root {{ {LIGHT} }} @media screen and (prefers-color-scheme: dark) {{ :root {{ {PARTNERS} }} {SHADES} }}\n"
Cell = str | int | float | bool | None
NUMBER = r"−?[\d,]+(?:\.\d+)?"
DEVIATING = re.compile(rf"{NUMBER}(?: ± {NUMBER})?(?: ?%)?|–")


class Drawing(Figure):
    """A figure that a notebook displays without pyplot."""

    measuring = False

    def draw(self, renderer: RendererBase) -> None:
        """Draw the figure; on savefig's first, measuring pass only compute its layout, which suffices for its size."""
        if not self.measuring:
            super().draw(renderer)
            return
        self.measuring = False
        engine = self.get_layout_engine()
        if engine is not None:
            engine.execute(self)

    def _repr_png_(self) -> bytes:
        return render(self, "png")


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, depending on the path's suffix; equal figures give equal bytes."""
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    if kind not in ("png", "svg", "pdf"):
        raise ArgumentError(f"path: a picture is saved as .png, .svg or .pdf, got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return disk.write_whole(path, render(figure, kind))


def svg(figure: Figure) -> str:
    """Return a figure as the text of one <svg> element, in which text remains text."""
    text = render(figure, "svg").decode()
    return text[text.index("<svg") :].strip()


def render(figure: Figure, kind: str) -> bytes:
    out = io.BytesIO()
    # Without a date and a random salt, pictures under version control change only if the numbers do.
    blank: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    settings: dict[Any, Any] = {"svg.hashsalt": "regard", "svg.fonttype": "none", "pdf.fonttype": 42}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A letter that no installed font has is drawn as a box; an SVG still contains it as text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        if isinstance(figure, Drawing):
            figure.measuring = True  # with bbox_inches="tight" matplotlib draws twice, first to measure
        try:
            figure.savefig(out, format=kind, dpi=160, metadata=blank[kind], bbox_inches="tight", pad_inches=0.08)
        finally:
            if isinstance(figure, Drawing):
                figure.measuring = False
    return out.getvalue()


# ---- scales of colours


@dataclass(frozen=True, eq=False)
class Scale:
    """A colour scale, which several panels can share: a colour map for the values from `low` to `high`."""

    colours: Colormap
    low: float
    high: float
    label: str = ""  # label of the bar: the quantity, or the largest weight


def list_scales(stack: Float[Tensor, "h n m"], stretch: bool = False) -> list[Scale]:
    """Return the scale of each panel: panels of weights share one, panels with negative values or above 1 another."""
    shares = [float(panel.min()) >= 0.0 and float(panel.max()) <= 1.0 + ROUNDING for panel in stack]
    weights = weight_scale(stack[shares], stretch)
    if all(shares):
        return [weights] * len(shares)
    others = stack[[not each for each in shares]]
    rest = own_scale(float(others.min()), float(others.max()))
    return [weights if each else rest for each in shares]


def weight_scale(weights: Tensor, stretch: bool, label: str = "") -> Scale:
    """Return the scale of weights: from 0 to 1 or, with `stretch`, to the largest weight, which the label states."""
    top = float(weights.max()) if stretch and weights.numel() else 0.0
    if not top > 0.0:
        return Scale(SEQUENTIAL, 0.0, 1.0, label)
    return Scale(SEQUENTIAL, 0.0, top, "; ".join(filter(None, [label, f"stretched: the largest is {end_text(top)}"])))


def own_scale(low: float, high: float) -> Scale:
    """Return the scale of arbitrary numbers: from 0 to `high`, or symmetric about 0 if some are negative."""
    if low < 0.0:
        reach = max(-low, high)
        return Scale(DIVERGING, -reach, reach)
    return Scale(SEQUENTIAL, 0.0, high if high > 0.0 else 1.0)


def draw_bar(
    figure: Figure, scale: Scale, beside: Sequence[Axes], size: tuple[float, float], *, within: bool = False
) -> Colorbar:
    """Draw a scale's colour bar `beside` panels of `size` inches in total or, with `within`, in the one given axes."""
    wide, high = size
    upright = high > wide if within else high >= 1.1
    length = min(1.8, high if upright else wide)
    numbers = ScalarMappable(Normalize(scale.low, scale.high), scale.colours)
    if within:
        bar = figure.colorbar(numbers, cax=beside[0], orientation="vertical" if upright else "horizontal")
    else:
        place = {"location": "right"} if upright else {"location": "bottom"}
        part = min(1.0, length / (figure.get_figheight() if upright else figure.get_figwidth()))
        bar = figure.colorbar(numbers, ax=list(beside), shrink=part, aspect=length / 0.09, pad=0.03, **place)  # type: ignore[arg-type]
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, colors=FAINT, length=0, pad=2)
    ticks = [scale.low, (scale.low + scale.high) / 2, scale.high]
    bar.set_ticks(ticks, labels=list(map(end_text, ticks)))
    bar.ax.minorticks_off()
    for label in [*bar.ax.get_xticklabels(), *bar.ax.get_yticklabels()]:
        label.set_fontfamily("DejaVu Sans")
    if scale.label:
        bar.set_label(scale.label, fontsize=7, color=FAINT, labelpad=3, fontfamily="DejaVu Sans")
    bar.ax.set_gid("scale")
    return bar


def share(value: float) -> str:
    """Format a number with two decimals, as .83 instead of 0.83 and 1 instead of 1.00; from 10 with three digits."""
    if abs(value) >= 10:
        return f"{value:.3g}"
    text = f"{value:.2f}"
    return text[: -len(".00")] if text.endswith(".00") else text.replace("0.", ".", 1)


def end_text(value: float) -> str:
    """Format a tick of a colour bar: like a share, but with two significant digits below 0.1."""
    return share(value) if abs(value) >= 0.1 or value == 0 else f"{value:.2g}".replace("0.", ".", 1)


def letters_on(colour: tuple[float, ...]) -> str:
    """Choose black or white text for a background by WCAG's luminance, with a contrast of about 4.5 to 1 or more.

    A page's dark theme inverts the background: black text on light colours turns white there, black text on medium
    colours stays black, and white text turns dark.
    """
    parts = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in colour[:3]]
    light = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    return BLACK if light > 0.295 else "#000000" if light > 0.175 else "#ffffff"


def is_dark(colour: tuple[float, ...]) -> bool:
    """Return whether white text is easier to read on a colour than dark text."""
    red, green, blue = colour[:3]
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.55)


# ---- line plots


def panels(count: int, *, titles: Sequence[str], height: float = 3.0, width: float = 7.2) -> tuple[Figure, list[Axes]]:
    """Make a figure with `count` panels side by side on a transparent background."""
    figure = Drawing(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0.0)
    every_axes = figure.subplots(1, count, squeeze=False)[0]
    for axes, title in zip(every_axes, titles, strict=True):
        axes.patch.set_alpha(0.0)
        axes.set_title(title, fontsize=10, color=INK, loc="left", pad=8, parse_math=False)
        axes.tick_params(labelsize=8, colors=FAINT, length=3, width=0.6, which="both")
        axes.tick_params(which="minor", length=0)
        axes.grid(color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set(color=RULE, visible=side in ("left", "bottom"))
        axes.xaxis.label.set(size=9, color=FAINT)
        axes.yaxis.label.set(size=9, color=FAINT)
    return figure, list(every_axes)


def band(axes: Axes, x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str) -> None:
    """Fill the area between `low` and `high`, such as the quartiles around a median."""
    axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)


def legend(axes: Axes, **where: Any) -> None:
    """Add a legend without a frame, in the page's text colour."""
    axes.legend(fontsize=8, frameon=False, labelcolor=INK, handlelength=1.6, **where)


def draw_lengths(lengths: Lengths, title: str = "") -> Figure:
    """Plot the score of each range of lengths with its 95 % interval and sentence count, and the score of all."""
    buckets = lengths.buckets
    width = min(max(4.0, 1.2 + 0.75 * len(buckets)), 9.0)
    figure, (axes,) = panels(1, titles=[title or f"{lengths.metric} by source length"], width=width, height=3.0)
    axes.axhline(lengths.value, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    style: dict[str, Any] = {"va": "center", "fontsize": 8, "color": FAINT, "textcoords": "offset points"}
    at = ("axes fraction", "data")
    axes.annotate(f"all {lengths.value:.1f}", (1.0, lengths.value), (4, 0), xycoords=at, **style)
    x, y = [], []
    for i, bucket in enumerate(buckets):
        if bucket.interval is None:
            axes.plot([i], [bucket.value], "o", color=BLUE, markersize=5, markerfacecolor="none", zorder=4)
            continue
        axes.plot([i, i], bucket.interval, "_-", color=BLUE, linewidth=1.0, markersize=7, zorder=3)
        x.append(i)
        y.append(bucket.value)
    axes.plot(x, y, "o-", color=BLUE, linewidth=1.4, markersize=5, zorder=4)
    axes.set_xticks(range(len(buckets)), [f"{bucket.name}\n{bucket.sentences:,}" for bucket in buckets])
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.5, len(buckets) - 0.5)
    axes.set_ylim(bottom=0)
    few = f" (open: fewer than {FEW})" if len(x) < len(buckets) else ""
    axes.set_xlabel(f"{lengths.unit} of the source; below: sentences{few}")
    axes.set_ylabel(lengths.metric)
    return figure


# ---- pages as one HTML file


@dataclass(frozen=True)
class Table:
    """A table of plain numbers or text, with a format for each column."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    formats: Sequence[str] = ()
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ArgumentError(f"rows: {len(self.columns)} cells a row were expected, got {list(row)}")

    def text_rows(self) -> list[list[str]]:
        """Return the rows as text."""
        formats = [*self.formats, *([""] * (len(self.columns) - len(self.formats)))]
        return [[show(cell, style) for cell, style in zip(row, formats, strict=True)] for row in self.rows]

    def numeric(self) -> list[bool]:
        """Return for each column whether it contains only numbers, with or without deviations, and is right-aligned."""
        return [all(is_number(row[index]) for row in self.rows) for index in range(len(self.columns))]


def is_number(cell: Cell) -> bool:
    """Return whether a cell is a number, None, or the text of a number with or without a deviation (37.2 ± 0.3)."""
    return cell is None or isinstance(cell, int | float) or bool(DEVIATING.fullmatch(cell))


def show(cell: Cell, style: str = "") -> str:
    """Format a cell as text: with a true minus sign, powers of ten with superscripts, and a dash for None."""
    if cell is None:
        return "–"
    if isinstance(cell, str | bool):
        return str(cell)
    if cell == 0:
        return "0"
    text = format(cell, style or (".3g" if isinstance(cell, float) else ",d"))
    if "e" in text and math.isfinite(cell):
        digits, power = text.split("e")
        raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = f"{digits}·10{raised}"
    return text.replace("-", "−")


def document(title: str, body: Sequence[str], style: str = "") -> str:
    """Return the HTML of a whole page with these elements in its body; `style` is added to the common CSS."""
    head = (
        '<!doctype html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<main>"
    )
    return "\n".join([head, *body, "</main>\n</body>\n</html>\n"])


def figure_element(figure: Figure, index: int | str, *, caption: str, alt: str) -> str:
    """Return a <figure> element with a caption; `alt` describes the figure for people who cannot see it."""
    return (
        f"<figure><div>{svg_element(figure, index, alt=alt)}</div><figcaption>{escape(caption)}</figcaption></figure>"
    )


def svg_element(figure: Figure, index: int | str, *, alt: str) -> str:
    """Return a figure as an <svg> element whose colours are CSS variables, so that they follow light and dark themes.

    `index` must differ between the figures of a page: it is part of every id in the element.
    """

    def restyle(match: re.Match[str]) -> str:
        tag = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>plot{index}-", match[0])
        tag = re.sub(r"(?<=[: ])font: ([0-9.]+)px [^;\"]*", r"font: \1px system-ui, 'DejaVu Sans', sans-serif", tag)
        for light in DARK:
            tag = tag.replace(light, f"var(--c{light[1:]})")
        return tag

    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg(figure), flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[0-9.]+pt"', "", text, count=2)
    # Restyle tags only: text stays unchanged.
    text = re.sub(r"<[^>]+>", restyle, text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)


def table_element(table: Table, numeric: Sequence[bool] | None = None) -> str:
    """Return the HTML of a table that scrolls sideways if it is too wide; `numeric` columns are right-aligned."""
    right = ['class="number"' if number else "" for number in numeric or table.numeric()]

    def row(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag} {c}>{escape(x)}</{tag}>" for c, x in zip(right, cells, strict=True)) + "</tr>"

    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(table.caption)}"><table>'
        f"<caption>{escape(table.caption)}</caption><thead>{row(list(table.columns), 'th')}</thead>"
        f"<tbody>{''.join(row(cells, 'td') for cells in table.text_rows())}</tbody></table></div>{note}"
    )
