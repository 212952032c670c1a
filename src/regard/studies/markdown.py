"""A study's page as Markdown."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.studies.page import Page, Table

__all__ = ["render", "table"]


def render(page: "Page") -> str:
    """The whole page; pictures are named, not embedded."""
    parts = [f"# {page.title}", f"> {page.claim}", f"— {page.source}", "## What agrees and what does not"]
    parts.append("\n".join(f"- **{v.word.capitalize()}**: {v.claim} — {v.evidence}" for v in page.verdicts))
    parts += ["## What was measured", *page.measured]
    for plot in page.plots:
        parts += [f"![{plot.alt}]({plot.name}.png)", f"*{plot.caption}*"]
    for each in page.tables:
        parts += [f"### {each.caption}", table(each)]
        if each.note:
            parts.append(each.note)
    if page.caveats:
        parts += ["## What this does not show", "\n".join(f"- {caveat}" for caveat in page.caveats)]
    parts += [
        "## Signature",
        str(page.signature),
        f"Again with `{page.signature.again(page.name)}`; every number is in `results.json`.",
    ]
    return "\n\n".join(parts) + "\n"


def table(each: "Table") -> str:
    """One table, numbers to the right."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in [list(each.columns), *each.shown()]]
    rule = ["---:" if right else ":---" for right in each.numeric()]
    return "\n".join("| " + " | ".join(row) + " |" for row in [escaped[0], rule, *escaped[1:]])
