"""`regard runs`: a table of run folders."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.messages import print_message, print_table
from regard.cli.options import flag_option
from regard.errors import CommandError

EXAMPLES = ("regard runs", "regard runs experiments/ --json")


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of run folders; default: runs.", show_default=False)
    ] = Path("runs"),
    as_json: Annotated[bool, flag_option("--json", "Print one JSON object per run and line.")] = False,
) -> None:
    """List the run folders in a folder, with their best scores.

    It searches folders three levels deep. `regard show RUN` prints more about one of them.
    """
    from regard.tasks import find_runs

    if folder.is_file():
        raise CommandError(f"{folder}: a file given, expected a folder with run folders in it")
    if not folder.is_dir():
        raise CommandError(f"{folder}: no such folder, expected one with run folders in it")
    summaries = list(find_runs(folder))
    if as_json:
        for each in summaries:
            print(json.dumps(each.table(), ensure_ascii=False, allow_nan=False))
        return
    if not summaries:
        print_message(
            f"{folder}: no run folders in it; regard train --out {shlex.quote(str(folder / 'NAME'))} makes one"
        )
        return
    columns = ("run", "kind", "task", "data", "steps", "best score", "date", "size")
    rows = [
        (each.folder, each.kind, each.task, each.data, f"{each.step:,}", each.best_text, each.date[:10], each.size_text)
        for each in summaries
    ]
    print_table(columns, rows)
