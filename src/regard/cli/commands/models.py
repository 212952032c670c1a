"""`regard models`: kinds of models and their options."""

import dataclasses
import typing
from typing import Annotated

import typer

from regard.cli.messages import print_table, print_text
from regard.config import describe_type, show_value
from regard.errors import CommandError

EXAMPLES = ("regard models", "regard models transformer")


def models(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Kind of model to show the options of.", show_default=False)
    ] = None,
) -> None:
    """List the kinds of models, their papers and their options."""
    from regard.config import suggestion
    from regard.models import KINDS

    if kind is None:
        print_table(None, [(each.name, each.paper, each.summary) for each in KINDS.values()])
        print()
        print_text("regard models KIND shows its options and presets; regard train --model KIND trains one.")
        return
    if kind not in KINDS:
        raise CommandError(f"{kind}: no such kind{suggestion(kind, KINDS)}")
    row = KINDS[kind]
    print_text(f"{row.name}: {row.summary} ({row.paper})")
    print()
    hints = typing.get_type_hints(row.config)
    rows: list[tuple[str, ...]] = []
    for field in dataclasses.fields(row.config):
        nothing = "as layers" if field.name == "decoder_layers" else "none"
        default = nothing if field.default is None else show_value(field.default)
        rows.append((field.name, default, f"{field.metadata['help']} ({describe_type(hints[field.name])})"))
    print_table(("--set model.…", "default", "what"), rows, numbers_right=False)
    if not row.presets:
        return
    print()
    options = list(dict.fromkeys(key for preset in row.presets.values() for key in preset))
    presets = [
        (name, *(show_value(preset[key]) if key in preset else "" for key in options))
        for name, preset in row.presets.items()
    ]
    print_table(("--preset", *options), presets, numbers_right=False)
