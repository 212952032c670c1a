"""Pages as one HTML file: no network, no scripts, light and dark, on paper and on a phone.

The studies' pages and the runs' reports are made of these parts.
"""

import re
from collections.abc import Sequence
from html import escape

from matplotlib.figure import Figure

from regard.inspection.draw.heatmap import svg
from regard.inspection.draw.plot import DARK
from regard.inspection.draw.table import Table

STYLE = """
:root { color-scheme: light dark; --ink: #23272f; --faint: #5b6472; --rule: #d5d9e0; --paper: #ffffff; --wash: #f5f7fa;
  --good: #0b6b4f; --bad: #a63c00; --accent: #0b5fa5; --shade: #23272f42; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e4e7ec; --faint: #9aa4b2; --rule: #3a414d;
  --paper: #14171c; --wash: #1c2027; --good: #4fc79f; --bad: #f0965a; --accent: #6db6f0;
  --shade: #b4c6dc66; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 2rem 1.1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1rem; text-wrap: balance; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
.eyebrow { color: var(--faint); font-size: .85rem; margin: 0 0 .4rem; }
blockquote { margin: 0; padding: .1rem 0 .1rem 1rem; border-left: 3px solid var(--accent); }
blockquote p { margin: .3rem 0; }
a { color: var(--accent); }
cite { color: var(--faint); font-style: normal; font-size: .9rem; }
ul.verdicts { list-style: none; padding: 0; margin: 0; }
ul.verdicts li { padding: .6rem 0; border-bottom: 1px solid var(--rule); }
ul.verdicts li:last-child { border-bottom: 0; }
.word { font-weight: 650; font-size: .85rem; }
.agrees .word { color: var(--good); } .differs .word { color: var(--bad); }
.verdicts p { margin: 0; } .evidence { color: var(--faint); font-size: .92rem; font-variant-numeric: tabular-nums; }
figure { margin: 1.6rem 0; }
figure svg { width: 100%; min-width: 33rem; height: auto; display: block; }
figcaption, caption { color: var(--faint); font-size: .9rem; text-align: left; }
caption { padding-bottom: .5rem; color: var(--ink); font-weight: 600; }
/* What is too wide scrolls in its own box. A shade at an edge says that there is more: it belongs to the box, and the
   paper that covers it scrolls away with what is in the box. */
.wide, figure div { overflow-x: auto;
  background: linear-gradient(90deg, var(--paper) 60%, transparent) 0 0 / 2.4rem 100% no-repeat local,
  linear-gradient(270deg, var(--paper) 60%, transparent) 100% 0 / 2.4rem 100% no-repeat local,
  linear-gradient(90deg, var(--shade), transparent) 0 0 / .8rem 100% no-repeat scroll,
  linear-gradient(270deg, var(--shade), transparent) 100% 0 / .8rem 100% no-repeat scroll; }
.wide { margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; min-width: min(100%, 22rem); font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .32rem .7rem .32rem 0; text-align: left; border-bottom: 1px solid var(--rule);
  vertical-align: bottom; }
th { font-weight: 600; } th.number, td.number { text-align: right; padding-right: 0; padding-left: .7rem; }
td.number { white-space: nowrap; }
@media (max-width: 34rem) { table { font-size: .8rem; } th, td { padding-right: .4rem; }
  th.number, td.number { padding-left: .4rem; } caption { position: sticky; left: 0; width: calc(100vw - 2.2rem); }
  thead th { hyphens: auto; font-size: .92em; }
  .wide tr > :first-child { position: sticky; left: 0; background: var(--paper); max-width: 9.5rem;
    overflow-wrap: break-word; } figure svg { min-width: 27rem; } }
.note { color: var(--faint); font-size: .9rem; margin-top: .2rem; }
footer { margin-top: 2.6rem; padding-top: .8rem; border-top: 1px solid var(--rule); color: var(--faint);
  font-size: .85rem; }
code { font: .92em ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; background: var(--wash);
  padding: .1em .3em; border-radius: .25em; }
@media print { :root { color-scheme: light; --ink: #000; --faint: #444; --rule: #bbb; --paper: #fff; --wash: #fff;
  --good: #0b6b4f; --bad: #a63c00; --accent: #000; } main { max-width: none; padding: 0; }
  figure, table, li { break-inside: avoid; } h2 { break-after: avoid; } .wide, figure div { overflow: visible; }
  figure svg { min-width: 0; } }
"""


def document(title: str, body: Sequence[str], style: str = "") -> str:
    """A whole page from the elements of its body; `style` is added to the common one."""
    head = [
        "<!doctype html>",
        '<html lang="en-GB">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}{_colour_variables()}{style}</style>",
        "</head>",
    ]
    return "\n".join([*head, "<body>", "<main>", *body, "</main>", "</body>", "</html>", ""])


def figure_element(plot: Figure, index: int | str, *, caption: str, alt: str) -> str:
    """A figure with its caption; `alt` says what it shows for those who do not see it."""
    return f"<figure><div>{svg_element(plot, index, alt=alt)}</div><figcaption>{escape(caption)}</figcaption></figure>"


def svg_element(plot: Figure, index: int | str, *, alt: str) -> str:
    """A figure drawn into the page, its colours given over to the style sheet so that they follow light and dark.

    `index` must differ between the figures of a page: the names inside them begin with it.
    """
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg(plot), flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[0-9.]+pt"', "", text, count=2)
    # In tags alone: words stay as they are.
    text = re.sub(r"<[^>]+>", lambda tag: _use_style_colours(tag[0], index), text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)


def table_element(table: Table, numeric: Sequence[bool] | None = None) -> str:
    """A table that scrolls sideways by itself where it is too wide; `numeric` columns stand to the right."""
    right = ['class="number"' if number else "" for number in numeric or table.numeric()]

    def row(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag} {c}>{escape(x)}</{tag}>" for c, x in zip(right, cells, strict=True)) + "</tr>"

    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(table.caption)}"><table>'
        f"<caption>{escape(table.caption)}</caption><thead>{row(list(table.columns), 'th')}</thead>"
        f"<tbody>{''.join(row(cells, 'td') for cells in table.text_rows())}</tbody></table></div>{note}"
    )


def _use_style_colours(tag: str, index: int | str) -> str:
    tag = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>plot{index}-", tag)
    tag = re.sub(r"(?<=[: ])font: ([0-9.]+)px [^;\"]*", r"font: \1px system-ui, 'DejaVu Sans', sans-serif", tag)
    for light in DARK:
        tag = tag.replace(light, f"var(--c{light[1:]})")
    return tag


def _colour_variables() -> str:
    """One variable a colour, with its partner for dark paper; shades from white to dark are turned around there."""
    light = " ".join(f"--c{colour[1:]}: {colour};" for colour in DARK)
    dark = " ".join(f"--c{colour[1:]}: {partner};" for colour, partner in DARK.items())
    shades = 'svg image, svg [id*="QuadMesh"] { filter: invert(.91) hue-rotate(180deg); }'
    shades += ' svg [id*="shade-"] { filter: invert(.91) hue-rotate(180deg) }'  # letters stand on it
    return f":root {{ {light} }} @media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} {shades} }}\n"
