"""`regard pack`: a run in one file."""

import shlex
from pathlib import Path
from typing import Annotated

from regard.cli.messages import print_message
from regard.cli.options import CheckpointOption, RunArgument, file_option, out_option, text_option
from regard.errors import CommandError

EXAMPLES = (
    "regard pack runs/en-de --out en-de.regard --licence CC-BY-4.0",
    "regard pack runs/en-de --out last.regard --checkpoint last",
)


def pack(
    run: RunArgument,
    out: Annotated[Path | None, out_option("File to write, such as en-de.regard.")] = None,
    licence: Annotated[
        str | None, text_option("Licence to state on the card, such as CC-BY-4.0.", metavar="NAME")
    ] = None,
    scores: Annotated[Path | None, file_option("Scores to put on the card: what `regard eval --json` printed.")] = None,
    checkpoint: CheckpointOption = "best",
) -> None:
    """Pack a run into one file that every command takes.

    The file holds one checkpoint, the tokenizer, the configuration without paths, and a card: data by name, size and
    checksum, scores, licence. It is a zip file; unzip makes a run folder of it.
    """
    if out is None:
        raise CommandError(f"--out: missing, expected a file to write, such as {Path(run).name or 'model'}.regard")

    from regard.interop import pack as write_pack

    path = write_pack(run, out, checkpoint=checkpoint, licence=licence, scores=scores)
    print_message(f"{path} written, {path.stat().st_size / 1e6:,.1f} MB; try: regard show {shlex.quote(str(path))}")
    if licence is None:
        print_message("the card states no licence; others need one to know what they may do: --licence NAME")
