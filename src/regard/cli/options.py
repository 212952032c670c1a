"""Options that several commands have, declared once; and numbers that are read within limits."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from regard.config import value_of
from regard.decoding.options import Options
from regard.errors import ConfigError

SEED = 2**31 - 1  # the largest seed of what several generators are seeded by
WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")
LIMITS = {field.name: {k: v for k, v in field.metadata.items() if k != "help"} for field in fields(Options)}
SEARCH = {field.name: str(field.metadata["help"]) for field in fields(Options)}  # the search's options and their help


def flag_option(name: str, help: str) -> Any:
    """Declare an option that is there or not."""
    return typer.Option(name, help=help)


def text_option(help: str, *names: str) -> Any:
    """Declare an option that has a value, and none by default."""
    return typer.Option(*names, help=help, show_default=False)


def number_option(
    help: str,
    *,
    least: float | None = None,
    most: float,
    above: float | None = None,
    kind: Literal["whole", "fraction"] = "whole",
    show_default: bool = True,
) -> Any:
    """Declare an option that is a number within limits, which its help names."""
    limits = {name: limit for name, limit in (("least", least), ("above", above), ("most", most)) if limit is not None}
    low = f"{least:,}" if least is not None else f"above {above}"
    span = f"{low} to {most:,}" if most < SEED else f"from {low}"

    def parser(value: Any) -> Any:
        """The number of a text; a default is one already."""
        if not isinstance(value, str):
            return value
        try:
            return value_of(int if kind == "whole" else float, read_number(value, kind), "", limits)
        except ConfigError as error:
            raise typer.BadParameter(error.problem) from None

    parser.__name__ = "INTEGER" if kind == "whole" else "NUMBER"  # what help calls it
    return typer.Option(help=f"{help} [{span}]", parser=parser, show_default=show_default)


def search_option(name: str, help: str | None = None) -> Any:
    """Declare an option of the search, in the words that `Options` has for it where none are given."""
    text = help or f"{SEARCH[name][0].upper()}{SEARCH[name][1:]}."
    default, limits = getattr(Options, name), LIMITS[name]
    if not limits:
        return typer.Option(help=text, show_default=default is not None)
    kind: Any = "fraction" if isinstance(default, float) else "whole"
    return number_option(text, kind=kind, show_default=default is not None, **limits)


def read_number(text: str, kind: str) -> int | float | str:
    """The number that a text is; the text itself where it is none."""
    if WHOLE.fullmatch(text.strip()):
        return int(text)
    try:
        return float(text) if kind == "fraction" and text.isascii() and len(text) < 1000 else text
    except ValueError:
        return text


# What is loaded, and where it runs.
RunArgument = Annotated[str, typer.Argument(help="Run folder.", show_default=False)]
RunsArgument = Annotated[list[str], typer.Argument(metavar="run", help="Run folder; several make an ensemble.")]
CheckpointOption = Annotated[str, typer.Option(help="Checkpoint to load: best, last, or a name such as step-000500.")]
DeviceOption = Annotated[
    str, typer.Option(help="Device to run on: cpu, cuda, mps (Apple), or auto, a GPU where there is one.")
]
BatchTokensOption = Annotated[
    int | None,
    number_option(
        "Source tokens in a batch, for each hypothesis; default: 8192, and on a GPU as many as fit.",
        least=1,
        most=16_777_216,
        show_default=False,
    ),
]

# What is written.
OutOption = Annotated[Path | None, text_option("File to write to; default: standard output.")]
ScoresOption = Annotated[bool, flag_option("--scores", "Write the score as well, after a tab.")]
JsonLinesOption = Annotated[bool, flag_option("--json", "Write one JSON object a line.")]
JsonOption = Annotated[bool, flag_option("--json", "Print one JSON object.")]

# The search.
BeamOption = Annotated[int, search_option("beam")]
NbestOption = Annotated[int, search_option("nbest")]
ShortestOption = Annotated[int, search_option("shortest")]
LongestOption = Annotated[int | None, search_option("longest")]
LengthPenaltyOption = Annotated[float, search_option("length_penalty")]
CoveragePenaltyOption = Annotated[float, search_option("coverage_penalty")]
NoRepeatOption = Annotated[int, search_option("no_repeat")]
GroupsOption = Annotated[int, search_option("groups")]
DiversityOption = Annotated[float, search_option("diversity")]
SampleOption = Annotated[bool, flag_option("--sample", "Sample each token at random instead of searching.")]
TemperatureOption = Annotated[float, search_option("temperature")]
TopKOption = Annotated[int, search_option("top_k")]
TopPOption = Annotated[float, search_option("top_p")]
SampleSeedOption = Annotated[int, search_option("seed")]
PrecisionOption = Annotated[str, search_option("precision")]

# What is measured.
SourceOption = Annotated[Path | None, text_option("Text file of sources to translate, one a line.")]
ReferenceOption = Annotated[Path | None, text_option("Text file of references, one a line.")]
AlternativesOption = Annotated[
    bool, flag_option("--alternatives", "Take lines with the same source as one item; any of its references is right.")
]
LowercaseOption = Annotated[bool, flag_option("--lowercase", "Ignore case.")]
TokenizeOption = Annotated[str, typer.Option(help="Tokenisation that BLEU uses: 13a, intl, zh, char or none.")]
