"""A study's page as HTML."""

from html import escape
from typing import TYPE_CHECKING

from regard.inspection.draw.html import document, figure_element, table_element

if TYPE_CHECKING:
    from regard.studies.page import Page, Verdict

__all__ = ["render"]


def render(page: "Page") -> str:
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
        *[figure_element(plot.figure, i, caption=plot.caption, alt=plot.alt) for i, plot in enumerate(page.plots)],
        *[table_element(table) for table in page.tables],
    ]
    if page.caveats:
        body += [
            "<h2>What this does not show</h2>",
            "<ul>",
            *[f"<li>{escape(each)}</li>" for each in page.caveats],
            "</ul>",
        ]
    again = page.signature.again(page.name)
    body.append(f"<footer><p>{escape(str(page.signature))}</p><p>Again: <code>{escape(again)}</code></p></footer>")
    return document(page.title, body)


def _verdict(verdict: "Verdict") -> str:
    kind = "agrees" if verdict.agrees else "differs"
    return (
        f'<li class="{kind}"><p><span class="word">{verdict.word.capitalize()}:</span> {escape(verdict.claim)}</p>'
        f'<p class="evidence">{escape(verdict.evidence)}</p></li>'
    )
