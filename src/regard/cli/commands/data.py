"""`regard data`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import SEED, number_option, read_number
from regard.errors import CommandError

MOST = 10_000_000


def data(
    name: Annotated[str | None, typer.Argument(help="Which corpus; --list shows them.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the files.", show_default=False)] = None,
    count: Annotated[int, number_option("Examples for training.", least=0, most=MOST)] = 30_000,
    valid: Annotated[int, number_option("Examples for validation.", least=0, most=MOST)] = 500,
    test: Annotated[int, number_option("Examples for testing.", least=0, most=MOST)] = 500,
    seed: Annotated[int, number_option("Of everything that is drawn.", least=0, most=SEED)] = 0,
    pair: Annotated[str, typer.Option("--pair", help="Languages of the phrasebook: en-de or en-fr.")] = "en-de",
    set_: Annotated[list[str], typer.Option("--set", help="option=value, of the corpus; may be repeated.")] = [],  # noqa: B006
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the corpora with their options and exit.")] = False,
) -> None:
    """Write a built-in corpus as files: sentences, gold alignments, heads; documents; pictures with captions."""
    from regard.data.builtin import CORPORA, known, options_of
    from regard.data.builtin.files import write
    from regard.io.output import check_link

    if show:
        for each, row in CORPORA.items():
            print(f"{each:12}{row.about}")
            print(f"{'':12}{'  '.join(f'{option}={value}' for option, value in options_of(each).items())}")
        return
    if name is None:
        raise CommandError(f"which corpus? there are {', '.join(CORPORA)}")
    allowed = options_of(name)
    if out is None:
        raise CommandError("where to? --out DIR is missing")
    check_link(out, "--out")
    options = {}
    for assignment in set_:
        option, equals, value = assignment.partition("=")
        if not equals:
            raise CommandError(f"--set {assignment}: option=value expected")
        if option not in allowed:
            raise CommandError(f"{name}: there is no option {option!r}, {known(tuple(allowed), option)}")
        options[option] = read_number(value, "whole")
    for path, lines in write(
        name, out, {"train": count, "valid": valid, "test": test}, seed=seed, pair=pair, force=force, **options
    ):
        print(f"{path}: {lines:,} lines", file=sys.stderr)
