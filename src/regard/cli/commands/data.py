"""`regard data`: a built-in corpus as files."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.messages import print_text
from regard.cli.options import SEED, flag_option, name_option, number_option, out_option, read_number, text_option
from regard.errors import CommandError

MAX_EXAMPLES = 10_000_000
EXAMPLES = ("regard data phrasebook -o data/", "regard data --list")


def data(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the corpus; --list shows them.", show_default=False)
    ] = None,
    out: Annotated[Path | None, out_option("Folder to write the files to.", "FOLDER")] = None,
    count: Annotated[int, number_option("Number of examples for training.", least=0, most=MAX_EXAMPLES)] = 30_000,
    valid: Annotated[int, number_option("Number of examples for validation.", least=0, most=MAX_EXAMPLES)] = 500,
    test: Annotated[int, number_option("Number of examples for testing.", least=0, most=MAX_EXAMPLES)] = 500,
    seed: Annotated[int, number_option("Random seed.", least=0, most=SEED)] = 0,
    pair: Annotated[str, name_option("Languages of the phrasebook: en-de or en-fr.")] = "en-de",
    edition: Annotated[
        int, number_option("Edition: 1, the text of earlier versions, or 2, text as people type it.", least=1, most=2)
    ] = 2,
    set_: Annotated[
        list[str], text_option("Option of the corpus to set; may be repeated.", "--set", metavar="OPTION=VALUE")
    ] = [],  # noqa: B006
    force: Annotated[bool, flag_option("--force", "Overwrite existing files.")] = False,
    show: Annotated[bool, flag_option("--list", "List the corpora with their options and exit.")] = False,
) -> None:
    """Write a built-in corpus as files.

    `phrasebook` has sentence pairs with gold alignments and syntactic heads; other corpora are labelled documents, or
    pictures with captions.
    """
    from regard.data import CORPORA, builtin
    from regard.io import check_link

    if show:
        for each, row in CORPORA.items():
            print_text(f"{each:12}{row.about}", 12)
            print_text(
                f"{'':12}{'  '.join(f'{option}={value}' for option, value in builtin.options_of(each).items())}", 12
            )
        return
    if name is None:
        raise CommandError(f"which corpus? there are {', '.join(CORPORA)}")
    allowed = builtin.options_of(name)
    if out is None:
        raise CommandError("--out: missing, expected the folder to write the files to")
    check_link(out, "--out")
    options: dict[str, Any] = {}
    for assignment in set_:
        option, equals, value = assignment.partition("=")
        if not equals:
            raise CommandError(f"--set {assignment}: expected option=value")
        if option not in allowed:
            raise CommandError(
                f"{name}: there is no option {option!r}, {builtin.suggest_names(tuple(allowed), option)}"
            )
        options[option] = read_number(value, "whole")
    drawing: dict[str, Any] = {"seed": seed, "pair": pair, "edition": edition, **options}
    counts: dict[Any, int] = {"train": count, "valid": valid, "test": test}
    for path, lines in builtin.write_corpus(name, out, counts, force=force, **drawing):
        print(f"{path}: {lines:,} lines", file=sys.stderr)
