"""`regard export`: a run written for another toolkit."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import CheckpointOption, file_option, folder_option, name_option, out_option, text_option
from regard.cli.runs import check_folders
from regard.errors import CommandError

EXAMPLES = (
    "regard export runs/en-de --to ctranslate2 --out exported/ --quantize int8",
    "regard export --verify exported/",
)


def export(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Run folder; with --verify, only if it was moved.")
    ] = None,
    *,
    to: Annotated[str | None, text_option("Format to write: ctranslate2, marian or m2m100.", metavar="NAME")] = None,
    out: Annotated[Path | None, out_option("Folder to make.", metavar="FOLDER")] = None,
    quantize: Annotated[
        str | None,
        name_option(
            "Number format of the weights, for ctranslate2: float32, float16, int8 or int8_float16.",
            show_default="float32",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        file_option("Text file of sentences to verify with; default: validation sentences, or random ones."),
    ] = None,
    verify: Annotated[Path | None, folder_option("Exported folder to verify again, instead of writing one.")] = None,
    checkpoint: CheckpointOption = "best",
) -> None:
    """Write a run in a form that other toolkits open, and verify it.

    Two hundred sentences are decoded by the run and by what was written; if they differ, nothing is left.
    """
    if verify is not None:
        if to or out or quantize or checkpoint != "best":
            raise CommandError("--verify: give only a run and --check with it")
        from regard.interop import read_manifest

        read_manifest(verify)  # before importing torch, which takes seconds

        from regard.interop import verify_export

        print(f"{verify} verified: {verify_export(verify, run, check)}")
        return
    if run is None:
        raise CommandError("which run? give a run folder, or --verify with an exported folder")
    if to is None or out is None:
        name, example = ("--to", "ctranslate2") if to is None else ("--out", "exported/")
        raise CommandError(f"{name}: missing, as in: {name} {example}")

    from regard.interop import check_new, find_format
    from regard.io import check_file

    row = find_format(to, "--to")
    check_new(out)
    check_folders(run)
    if check is not None:
        check_file(check)

    from regard.interop import export_model  # imports torch, which takes seconds

    options = {} if quantize is None else {"quantize": quantize}
    report = export_model(run, out, to=row.name, checkpoint=checkpoint, check=check, **options)
    print(f"{report.folder}: {report.format}, {len(report.files)} files, {report.bytes / 1e6:,.1f} MB")
    if report.verification is not None:
        print(f"verified: {report.verification}")
