"""`regard import`: a run made from a model of another toolkit."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.messages import print_message
from regard.cli.options import out_option, text_option, typed_command, with_languages

EXAMPLES = (
    "regard import opus-mt-en-de --out runs/en-de",
    "regard import m2m100 -o runs/m2m100 --source-language en --target-language de",
)


@with_languages
def import_(
    context: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder with a model in it.", show_default=False)],
    out: Annotated[Path, out_option("Run folder to make.", metavar="RUN")],
    format: Annotated[
        str | None,
        text_option("Format of the folder: marian, m2m100 or ctranslate2; default: recognised.", metavar="NAME"),
    ] = None,
    *,
    languages: dict[str, str | None],
) -> None:
    """Make a run from a pretrained translation model.

    Nothing is downloaded: FOLDER holds the files of a model of Marian (OPUS-MT), M2M-100 or NLLB as Transformers stores
    them, or of a Transformer in CTranslate2's format. Every command takes the run, and train --from fine-tunes it.
    """
    from regard.interop import check_model_folder, check_new, find_format, recognise

    check_new(out)
    check_model_folder(Path(folder))
    row = recognise(Path(folder)) if format is None else find_format(format, "--format")

    from regard.interop import import_model

    chosen = {f"{side}_language": code for side, code in languages.items()}
    report = import_model(folder, out, format=row.name, **chosen, command=typed_command(context))
    for note in report.notes:
        print_message(note)
    print(f"{report.folder}: {report.format}, {report.parameters:,} parameters, {report.pieces:,} pieces")
    run = shlex.quote(str(out))
    print(f'translate: regard translate {run} "…"')
    print(f'look:      regard look {run} "…"')
    print(f"fine-tune: regard train --from {run} --source FILE --target FILE --out NEW")
