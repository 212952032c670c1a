"""Pages as one HTML file: no network, no scripts, light and dark, on paper and on a phone.

The studies' pages and the runs' reports are made of these parts: documents, figures, and tables of plain numbers.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from html import escape

from matplotlib.figure import Figure

from regard.errors import ArgumentError
from regard.inspection.draw.graph import STATIC
from regard.inspection.draw.plot import DARK, svg

STYLE = "\n" + (STATIC / "document.css").read_text(encoding="utf-8")
# A variable a colour, with its partner for dark paper, where shades of white to dark are turned round.
LIGHT = " ".join(f"--c{colour[1:]}: {colour};" for colour in DARK)
PARTNERS = " ".join(f"--c{colour[1:]}: {partner};" for colour, partner in DARK.items())
SHADES = 'svg image, svg [id*="QuadMesh"] { filter: invert(.91) hue-rotate(180deg); }'
SHADES += ' svg [id*="shade-"] { filter: invert(.91) hue-rotate(180deg) }'  # letters stand on it
STYLE += f":root {{ {LIGHT} }} @media screen and (prefers-color-scheme: dark) {{ :root {{ {PARTNERS} }} {SHADES} }}\n"
Cell = str | int | float | bool | None
NUMBER = r"−?[\d,]+(?:\.\d+)?"
DEVIATING = re.compile(rf"{NUMBER}(?: ± {NUMBER})?(?: ?%)?|–")


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of plain numbers, with the format each column is shown in."""

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
        """Mark the columns that hold numbers, with or without their deviations, and stand to the right."""
        return [all(is_number(row[index]) for row in self.rows) for index in range(len(self.columns))]


def is_number(cell: Cell) -> bool:
    """Return whether a cell is a number, nothing, or a text that is a number with its deviation, as in 37.2 ± 0.3."""
    return cell is None or isinstance(cell, int | float) or bool(DEVIATING.fullmatch(cell))


def show(cell: Cell, style: str = "") -> str:
    """Write a cell as text: a true minus, powers of ten as people write them, a dash for nothing."""
    if cell is None:
        return "–"
    if isinstance(cell, str | bool):
        return str(cell)
    text = format(cell, style) if style else format(cell, ".3g" if isinstance(cell, float) else ",d")
    if cell == 0:
        return "0"
    if "e" in text and math.isfinite(cell):
        digits, power = text.split("e")
        raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = f"{digits}·10{raised}"
    return text.replace("-", "−")


def document(title: str, body: Sequence[str], style: str = "") -> str:
    """Write a whole page from the elements of its body; `style` is added to the common one."""
    head = [
        "<!doctype html>",
        '<html lang="en-GB">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}{style}</style>",
        "</head>",
    ]
    return "\n".join([*head, "<body>", "<main>", *body, "</main>", "</body>", "</html>", ""])


def figure_element(plot: Figure, index: int | str, *, caption: str, alt: str) -> str:
    """Write a figure with its caption; `alt` says what it shows for those who do not see it."""
    return f"<figure><div>{svg_element(plot, index, alt=alt)}</div><figcaption>{escape(caption)}</figcaption></figure>"


def svg_element(plot: Figure, index: int | str, *, alt: str) -> str:
    """Draw a figure into the page, its colours given over to the style sheet so that they follow light and dark.

    `index` must differ between the figures of a page: the names inside them begin with it.
    """

    def restyle(match: re.Match[str]) -> str:
        tag = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>plot{index}-", match[0])
        tag = re.sub(r"(?<=[: ])font: ([0-9.]+)px [^;\"]*", r"font: \1px system-ui, 'DejaVu Sans', sans-serif", tag)
        for light in DARK:
            tag = tag.replace(light, f"var(--c{light[1:]})")
        return tag

    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg(plot), flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[0-9.]+pt"', "", text, count=2)
    # In tags alone: words stay as they are.
    text = re.sub(r"<[^>]+>", restyle, text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)


def table_element(table: Table, numeric: Sequence[bool] | None = None) -> str:
    """Write a table that scrolls sideways by itself where it is too wide; `numeric` columns stand to the right."""
    right = ['class="number"' if number else "" for number in numeric or table.numeric()]

    def row(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag} {c}>{escape(x)}</{tag}>" for c, x in zip(right, cells, strict=True)) + "</tr>"

    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(table.caption)}"><table>'
        f"<caption>{escape(table.caption)}</caption><thead>{row(list(table.columns), 'th')}</thead>"
        f"<tbody>{''.join(row(cells, 'td') for cells in table.text_rows())}</tbody></table></div>{note}"
    )
