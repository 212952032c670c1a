"""The studies of a folder in one table: what was claimed, by whom, and what came out."""

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.inspection import Table, document
from regard.io import disk
from regard_studies import STUDIES
from regard_studies.page import markdown_table

TITLE = "The papers' claims, and what came out"
ABOUT = (
    "Each line is a study that `regard study NAME` runs: systems side by side on the same data with the same budget. "
    "Its page has the tables and plots, what agrees and what does not, and the command that does it again."
)
DIFFERENCES = "What does not agree"
STYLE = "main { max-width: 76rem; } td { vertical-align: top; min-width: 7rem; } td:nth-child(3) { min-width: 4rem; }\n"
NARROW = """@media (max-width: 40rem) { thead { display: none; } table, tbody, tr, td { display: block; }
  tr { padding: .7rem 0; border-bottom: 1px solid var(--rule); } .wide td { border: 0; padding: .1rem 0;
  max-width: none; position: static; } td:first-child { font-weight: 600; font-size: .95rem; }
  td:not(:first-child)::before { content: attr(data-column) ": "; color: var(--faint); } }
"""
COLUMNS = ["study", "claim", "agrees", "source", "measured on"]


def write_index(out: Path) -> Path:
    """Write index.md and index.html into the folder of the studies; return the Markdown file."""
    pages = read_results(out)
    rows = [[f"[{each['name']}]({each['name']}/README.md)", *cells_of(each)] for each in pages]
    differences = {each["name"]: claims for each in pages if (claims := differing_claims(each))}
    parts = [f"# {TITLE}", ABOUT, markdown_table(Table(TITLE, COLUMNS, rows))]
    if differences:
        lists = [
            f"**{name}**\n\n" + "\n".join(f"- {claim}" for claim in claims) for name, claims in differences.items()
        ]
        parts += [f"## {DIFFERENCES}", *lists]
    markdown = disk.write_whole(out / "index.md", "\n\n".join(parts) + "\n")
    head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
    body = [
        '<p class="eyebrow">Regard · studies</p>',
        f"<h1>{escape(TITLE)}</h1>",
        f"<p>{escape(ABOUT.replace('`', ''))}</p>",
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>',
        *[html_row(each) for each in pages],
        "</tbody></table></div>",
        *([f"<h2>{DIFFERENCES}</h2>"] if differences else []),
        *[html_list(name, claims) for name, claims in differences.items()],
    ]
    disk.write_whole(out / "index.html", document(TITLE, body, STYLE + NARROW))
    return markdown


def read_results(out: Path) -> list[dict[str, Any]]:
    """Read the results of each study in the folder, in the order of the list of studies."""
    by_name = {}
    for path in out.glob("*/results.json"):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
            by_name[str(results["name"])] = results
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: not the results of a study; remove it, or run the study again") from None
    order = list(STUDIES)
    return sorted(by_name.values(), key=lambda each: order.index(each["name"]) if each["name"] in order else len(order))


def cells_of(results: Mapping[str, Any]) -> list[str]:
    """Build the cells that follow a study's name in its row."""
    verdicts, signed = results["verdicts"], results["signature"]
    agreeing = [each for each in verdicts if each["agrees"]]
    trained = bool(signed.get("seeds"))
    seeds = signed["seeds"] if trained else [signed["seed"]]
    where = [signed.get("corpus") or ("what is built in" if trained else "nothing trained"), signed["device"]]
    where.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
    where += ["quick"] * bool(signed["quick"])
    counted = f"{len(agreeing)} of {len(verdicts)}"
    study = STUDIES.get(results["name"])
    claim = results["claim"] if study is None else study.claim
    return [claim, counted, results["source"], ", ".join(where)]


def differing_claims(results: Mapping[str, Any]) -> list[str]:
    """List the claims of a study that the measurements do not agree with."""
    return [each["claim"] for each in results["verdicts"] if not each["agrees"]]


def html_row(results: Mapping[str, Any]) -> str:
    """Render a row of the HTML table."""
    name = escape(results["name"])
    named = zip(COLUMNS[1:], cells_of(results), strict=True)
    cells = "".join(f'<td data-column="{column}">{escape(cell)}</td>' for column, cell in named)
    return f'<tr><td><a href="{name}/index.html">{name}</a></td>{cells}</tr>'


def html_list(name: str, claims: list[str]) -> str:
    """Render the claims of a study that do not agree, as a list below its name."""
    items = "".join(f"<li>{escape(claim)}</li>" for claim in claims)
    return f"<h3>{escape(name)}</h3><ul>{items}</ul>"
