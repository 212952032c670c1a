"""`regard classify`."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.messages import print_message
from regard.cli.options import CheckpointOption, DeviceOption, OutOption, RunArgument, flag_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from regard.run import Run


def classify(
    run: RunArgument,
    items: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Text file of documents, one a line; or pictures, or folders of them."),
    ] = None,
    scores: Annotated[bool, flag_option("--scores", "Write the label's probability as well, after a tab.")] = False,
    as_json: Annotated[bool, flag_option("--json", "Write one JSON object a line, with all probabilities.")] = False,
    out: OutOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Write the label of each document or picture, with a trained run.

    regard classify runs/reviews texts.txt --out labels.txt writes a label a line; without a file, standard input is
    read as it comes. Of pictures each label follows the path and a tab.
    """
    from regard.io.output import check_output, open_output

    given = items or []
    check_output(out, *given)

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
    lines = DocumentLines.of(given, print_message)
    with open_output(out) as write, progress_bar(lines.total, out is not None) as advance:
        for count, written in lines.labelled(opened.classify, scores, as_json):
            write(written)
            advance(count)


def of_pictures(run: "Run", given: "Sequence[str]", scores: bool, as_json: bool) -> "Iterator[str]":
    """The label of each picture; those that cannot be read are named, and counted."""
    from regard.data.images.batching import read_for
    from regard.data.images.caption_files import NAMED, list_names, pictures_in
    from regard.errors import CommandError, DataError
    from regard.io.formats import label_line

    if not given:
        raise CommandError(f"which pictures? {run.folder} reads pictures; give files, or folders of them")
    paths, lost = pictures_in(given, print_message), 0
    for path in paths:
        try:
            pixels = read_for(run.settings.data, path)
        except DataError as error:
            if len(paths) == 1:
                raise
            lost += 1
            if lost <= NAMED:
                print_message(list_names([str(error)]))
            continue
        place = "" if len(paths) == 1 and list(given) == paths else path
        yield label_line({"picture": path}, run.classify([pixels])[0], scores, as_json, place)
    if lost == len(paths):
        raise CommandError(f"none of {lost:,} pictures can be read")
    if lost:
        print_message(f"{lost:,} of {len(paths):,} pictures cannot be read and are left out")
