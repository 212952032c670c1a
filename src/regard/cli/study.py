"""`regard study`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import CommandError


def study(
    name: Annotated[str | None, typer.Argument(help="Which study; --list shows them.", show_default=False)] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the pages.")] = Path("studies"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of everything that is drawn.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer draws, for a first look.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the studies and exit.")] = False,
) -> None:
    """Run a claim from the literature, and write a page with its table and its plot."""
    from regard.studies import STUDIES, run

    if show:
        for each, (claim, _) in STUDIES.items():
            print(f"{each:12}{claim}")
        return
    if name is None:
        raise CommandError(f"which study? there are {', '.join(STUDIES)}")

    page = run(name, seed=seed, quick=quick)
    written = page.write(out)

    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    for table in page.tables:
        shown = Table(title=table.caption, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for column, right in zip(table.columns, table.numeric(), strict=True):
            shown.add_column(column, justify="right" if right else "left")
        for row in table.shown():
            shown.add_row(*row)
        console.print(shown, "", markup=False)
    for verdict in page.verdicts:
        print(f"{verdict.word:15} {verdict.claim}: {verdict.evidence}")
    print(f"\n{page.signature}")
    print(f"page: {written}", file=sys.stderr)
