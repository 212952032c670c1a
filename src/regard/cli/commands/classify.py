"""`regard classify`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.commands.translate import flag, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from regard.run import Run


def classify(
    run: Annotated[str, typer.Argument(help="A run folder.", show_default=False)],
    items: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="A document a line; or pictures, or folders of them.")
    ] = None,
    scores: Annotated[bool, flag("--scores", "Write the label's probability behind a tab.")] = False,
    as_json: Annotated[bool, flag("--json", "Write a JSON object a line, with all probabilities.")] = False,
    out: Annotated[Path | None, text("File to write, in place of standard output.")] = None,
    checkpoint: Annotated[str, typer.Option(help="best, last, or one by its name.")] = "best",
    device: Annotated[str, typer.Option(help="cpu, cuda, mps (Apple), or auto: a GPU where there is one.")] = "auto",
) -> None:
    """Say which label a document has, or a picture, with a trained run.

    regard classify runs/reviews texts.txt --out labels.txt writes a label a line; without a file, standard input is
    read as it comes. Of pictures each label stands behind the path and a tab.
    """
    from regard.io.output import check_out, open_output

    given = items or []
    check_out(out, *given)

    from regard.decoding.processes import Processes
    from regard.io.inputs import DocumentLines
    from regard.io.output import progress_bar
    from regard.run import load

    opened = load(run, checkpoint=checkpoint, device=Processes().device(device))
    opened.check_task("classify")
    if opened.settings.data.reads == "pictures":
        with open_output(out) as write:
            for line in of_pictures(opened, given, scores, as_json):
                write(line)
        return
    lines = DocumentLines.of(given, warn)
    with open_output(out) as write, progress_bar(lines.total, out is not None) as advance:
        for count, written in lines.labelled(opened.classify, scores, as_json):
            write(written)
            advance(count)


def of_pictures(run: "Run", given: "Sequence[str]", scores: bool, as_json: bool) -> "Iterator[str]":
    """The label of each picture; those that cannot be read are named, and counted."""
    from regard.data.captions import NAMED, named, pictures_in
    from regard.data.pictures import read_for
    from regard.errors import CommandError, DataError
    from regard.io.formats import label_line

    if not given:
        raise CommandError(f"which pictures? {run.folder} reads pictures; give files, or folders of them")
    paths, lost = pictures_in(given, warn), 0
    for path in paths:
        try:
            pixels = read_for(run.settings.data, path)
        except DataError as error:
            if len(paths) == 1:
                raise
            lost += 1
            if lost <= NAMED:
                warn(named([str(error)]))
            continue
        place = "" if len(paths) == 1 and list(given) == paths else path
        yield label_line({"picture": path}, run.classify([pixels])[0], scores, as_json, place)
    if lost == len(paths):
        raise CommandError(f"none of {lost:,} pictures can be read")
    if lost:
        warn(f"{lost:,} of {len(paths):,} pictures cannot be read and are left out")


def warn(said: str) -> None:
    """One line on standard error."""
    print(f"regard: {said}", file=sys.stderr)
