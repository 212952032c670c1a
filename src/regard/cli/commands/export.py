"""`regard export`: a run written for another toolkit."""

from pathlib import Path
from typing import Annotated

from regard.cli.options import CheckpointOption, RunArgument, out_option, text_option

EXAMPLES = (
    "regard export runs/en-de --to marian --out exported/",
    "regard export runs/en-de --to marian --out exported/ --checkpoint last",
)


def export(
    run: RunArgument,
    to: Annotated[str, text_option("Format to write, such as marian.", metavar="NAME")],
    out: Annotated[Path, out_option("Folder to make.", metavar="FOLDER")],
    checkpoint: CheckpointOption = "best",
) -> None:
    """Write a run in a form that other toolkits open."""
    from regard.cli.runs import check_folders
    from regard.interop.folders import check_new
    from regard.interop.formats import find_format

    row = find_format(to, "--to")
    check_new(out)
    check_folders(run)

    from regard.interop.export import export_model

    report = export_model(run, out, to=row.name, checkpoint=checkpoint)
    print(f"{report.folder}: {report.format}, {len(report.files)} files, {report.bytes / 1e6:,.1f} MB")
