"""A study's page as one HTML file: no network, light and dark, on paper and on a phone."""

import re
from html import escape

from regard.inspection.picture import svg
from regard.studies.page import Page, Plot, Table, Verdict
from regard.studies.plot import DARK

__all__ = ["render"]

STYLE = """
:root { color-scheme: light dark; --ink: #23272f; --faint: #5b6472; --rule: #d5d9e0; --paper: #ffffff; --wash: #f5f7fa;
  --good: #0b6b4f; --bad: #a63c00; --accent: #0b5fa5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ec; --faint: #9aa4b2; --rule: #3a414d; --paper: #14171c;
  --wash: #1c2027; --good: #4fc79f; --bad: #f0965a; --accent: #6db6f0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 2rem 1.1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1rem; text-wrap: balance; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
.eyebrow { color: var(--faint); font-size: .85rem; margin: 0 0 .4rem; }
blockquote { margin: 0; padding: .1rem 0 .1rem 1rem; border-left: 3px solid var(--accent); }
blockquote p { margin: .3rem 0; }
cite { color: var(--faint); font-style: normal; font-size: .9rem; }
ul.verdicts { list-style: none; padding: 0; margin: 0; }
ul.verdicts li { padding: .6rem 0; border-bottom: 1px solid var(--rule); }
ul.verdicts li:last-child { border-bottom: 0; }
.word { font-weight: 650; font-size: .85rem; }
.agrees .word { color: var(--good); } .differs .word { color: var(--bad); }
.verdicts p { margin: 0; } .evidence { color: var(--faint); font-size: .92rem; font-variant-numeric: tabular-nums; }
figure { margin: 1.6rem 0; }
figure div { overflow-x: auto; }
figure svg { width: 100%; min-width: 33rem; height: auto; display: block; }
figcaption, caption { color: var(--faint); font-size: .9rem; text-align: left; }
caption { padding-bottom: .5rem; color: var(--ink); font-weight: 600; }
.wide { overflow-x: auto; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; min-width: min(100%, 22rem); font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .32rem .7rem .32rem 0; text-align: left; border-bottom: 1px solid var(--rule);
  vertical-align: bottom; }
th { font-weight: 600; } th.number, td.number { text-align: right; padding-right: 0; padding-left: .7rem; }
td.number { white-space: nowrap; }
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


def render(page: Page) -> str:
    """The whole page as text."""
    body = [
        f'<p class="eyebrow">Regard · study · {escape(page.name)}</p>',
        f"<h1>{escape(page.title)}</h1>",
        f"<blockquote><p>{escape(page.claim)}</p><cite>{escape(page.source)}</cite></blockquote>",
        "<h2>What agrees and what does not</h2>",
        '<ul class="verdicts">',
        *[_verdict(verdict) for verdict in page.verdicts],
        "</ul>",
        "<h2>What was measured</h2>",
        *[f"<p>{escape(paragraph)}</p>" for paragraph in page.measured],
        *[_plot(plot, index) for index, plot in enumerate(page.plots)],
        *[_table(table) for table in page.tables],
    ]
    if page.caveats:
        body += [
            "<h2>What this does not show</h2>",
            "<ul>",
            *[f"<li>{escape(each)}</li>" for each in page.caveats],
            "</ul>",
        ]
    quick = " --quick" if page.signature.quick else ""
    again = f"regard study {page.name} --seed {page.signature.seed}{quick}"
    body.append(f"<footer><p>{escape(str(page.signature))}</p><p>Again: <code>{escape(again)}</code></p></footer>")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en-GB">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(page.title)}</title>",
            f"<style>{STYLE}{_inks()}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _verdict(verdict: Verdict) -> str:
    kind = "agrees" if verdict.agrees else "differs"
    return (
        f'<li class="{kind}"><p><span class="word">{verdict.word.capitalize()}:</span> {escape(verdict.claim)}</p>'
        f'<p class="evidence">{escape(verdict.evidence)}</p></li>'
    )


def _table(table: Table) -> str:
    right = ['class="number"' if number else "" for number in table.numeric()]

    def row(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag} {c}>{escape(x)}</{tag}>" for c, x in zip(right, cells, strict=True)) + "</tr>"

    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(table.caption)}"><table>'
        f"<caption>{escape(table.caption)}</caption><thead>{row(list(table.columns), 'th')}</thead>"
        f"<tbody>{''.join(row(cells, 'td') for cells in table.shown())}</tbody></table></div>{note}"
    )


def _plot(plot: Plot, index: int) -> str:
    """The figure drawn into the page, its colours given over to the style sheet so that they follow light and dark."""
    drawing = svg(plot.figure)
    drawing = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>plot{index}-", drawing)  # ids must differ between figures
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r' (?:width|height)="[0-9.]+pt"', "", drawing, count=2)
    drawing = re.sub(r"(?<=[: ])font: ([0-9.]+)px [^;\"]*", r"font: \1px system-ui, 'DejaVu Sans', sans-serif", drawing)
    for light in DARK:
        drawing = drawing.replace(light, f"var(--c{light[1:]})")
    head = f'<svg role="img" aria-label="{escape(plot.alt)}"'
    drawing = drawing.replace("<svg", head, 1)
    return f"<figure><div>{drawing}</div><figcaption>{escape(plot.caption)}</figcaption></figure>"


def _inks() -> str:
    """One variable a colour, with its partner for dark paper."""
    light = " ".join(f"--c{colour[1:]}: {colour};" for colour in DARK)
    dark = " ".join(f"--c{colour[1:]}: {partner};" for colour, partner in DARK.items())
    return f":root {{ {light} }} @media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
