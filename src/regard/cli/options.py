"""Options that several commands share; numbers within limits; options that set the fields of a dataclass."""

import functools
import inspect
import re
import shlex
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from regard.config import hints_of, parse, value_of
from regard.decoding import Options
from regard.errors import CommandError, ConfigError

Command = Callable[..., None]
SEED = 2**31 - 1  # the largest seed: one option seeds several generators
WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")


def flag_option(name: str, help: str) -> Any:
    """Declare an option without a value."""
    return typer.Option(name, help=help)


def text_option(help: str, *names: str, metavar: str = "TEXT", show_default: bool | str = False) -> Any:
    """Declare an option with a value, called `metavar` in the help."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=show_default)


def out_option(help: str, metavar: str = "FILE") -> Any:
    """Declare the option for the output path, the same in every command that writes."""
    return text_option(help, "--out", "-o", metavar=metavar)


file_option = functools.partial(text_option, metavar="FILE")
folder_option = functools.partial(text_option, metavar="FOLDER")
name_option = functools.partial(text_option, metavar="NAME", show_default=True)  # one of a few names


def number_option(
    help: str,
    *,
    least: float | None = None,
    most: float,
    above: float | None = None,
    kind: Literal["whole", "fraction"] = "whole",
    show_default: bool | str = True,
    names: Sequence[str] = (),
    hint: Any = None,
) -> Any:
    """Declare an option that is a number within limits, which its help states; its `hint` may also allow words."""
    limits = {name: limit for name, limit in (("least", least), ("above", above), ("most", most)) if limit is not None}
    low = f"{least:,}" if least is not None else f"above {above}"
    span = f"{low} to {most:,}" if most < SEED else f"from {low}"

    def parser(value: Any) -> Any:
        """Parse the text of a number; a default is already a number."""
        if not isinstance(value, str):
            return value
        try:
            return value_of(hint or (int if kind == "whole" else float), read_number(value, kind), "", limits)
        except ConfigError as error:
            raise typer.BadParameter(error.problem) from None

    metavar = "N" if kind == "whole" else "NUMBER"
    return typer.Option(*names, metavar=metavar, help=f"{help} [{span}]", parser=parser, show_default=show_default)


def field_option(
    settings: Any, name: str, help: str = "", *, metavar: str = "NAME", default: Any = ..., show_default: bool = True
) -> tuple[Any, Any]:
    """Declare an option that sets a field of a dataclass; return its annotation and its default.

    Limits, type and help are the field's, unless `help` replaces its text. With None as `default`, the command can tell
    whether the option was given; the help still shows the field's own default.
    """
    field, hint = {each.name: each for each in fields(settings)}[name], hints_of(settings)[name]
    flag, words, several = f"--{name.replace('_', '-')}", field.metadata["help"], typing.get_origin(hint) is tuple
    text = help or f"{words[0].upper()}{words[1:]}{'; may be repeated' * several}."
    own, default = field.default, field.default if default is ... else default
    if hint is bool:
        return Annotated[bool if default is not None else bool | None, flag_option(flag, text)], default
    shown: Any = show_default and own not in (None, ()) and (str(own) if default is None else True)
    number = next((each for each in (int, float) if each in (hint, *typing.get_args(hint))), None)
    if number is not None:
        kind: Any = "whole" if number is int else "fraction"
        limits: Any = {key: value for key, value in field.metadata.items() if key in ("least", "most", "above")}
        option = number_option(text, kind=kind, show_default=shown, names=[flag], hint=hint, **limits)
    else:
        literals = [each for each in (hint, *typing.get_args(hint)) if typing.get_origin(each) is Literal]
        choices = [choice for each in literals for choice in typing.get_args(each)]
        if not all(choice in text for choice in choices):
            text += f" [{', '.join(choices[:-1])} or {choices[-1]}]"
        option = name_option(text, flag, metavar=metavar, show_default=shown)
    shape: Any = number or (list[str] if several else str)
    return Annotated[shape if default is not None else shape | None, option], default


def with_search(*names: str, without: Collection[str] = (), **helps: str) -> Callable[[Command], Command]:
    """Give a command search options: all of `Options`, or `names`; `helps` replaces the help of some of them.

    They replace the command's parameter `search`, which receives their values after `check_search`.
    """
    every = [field.name for field in fields(Options) if field.name not in without]
    options = {name: field_option(Options, name, helps.get(name, "")) for name in names or every}
    return with_options("search", options, check_search)


def with_options(
    place: str, options: Mapping[str, tuple[Any, Any]], check: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> Callable[[Command], Command]:
    """Give a command options by name, each with an annotation and a default, in place of one parameter.

    That parameter receives their values in a dictionary, after `check`.
    """
    kind = inspect.Parameter.KEYWORD_ONLY
    own = [
        inspect.Parameter(name, kind, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            arguments[place] = check({name: arguments.pop(name) for name in options})
            command(**arguments)

        signature = inspect.signature(command)
        parameters = list[inspect.Parameter]()
        for name, parameter in signature.parameters.items():
            parameters += own if name == place else [parameter]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def with_languages(command: Command) -> Command:
    """Give a command the options for multilingual runs, in place of its parameter `languages`."""
    helps = {"source": "Language of the sources", "target": "Language to translate into"}
    options = {
        f"{side}_language": (
            Annotated[str | None, text_option(f"{text}, such as de, for a run that knows several.", metavar="CODE")],
            None,
        )
        for side, text in helps.items()
    }
    return with_options("languages", options, lambda given: {side: given[f"{side}_language"] for side in helps})(
        command
    )


def check_search(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check search options together; a CommandError names the flag that is wrong."""
    try:
        parse(Options, values)
    except ConfigError as error:
        raise CommandError(f"--{error.key.replace('_', '-')}: {error.problem}") from None
    for name in ("temperature", "top_k", "top_p"):
        if not values.get("sample", True) and values[name] != getattr(Options, name):
            raise CommandError(f"--{name.replace('_', '-')}: {values[name]} given without --sample; add --sample")
    return dict(values)


def typed_command(context: typer.Context) -> str:
    """Return the current command as it was typed."""
    return shlex.join(["regard", *(context.obj or ())])


def read_number(text: str, kind: str) -> int | float | str:
    """Read a number from a text; return the text unchanged if it is no number."""
    if WHOLE.fullmatch(text.strip()):
        return int(text)
    try:
        return float(text) if kind == "fraction" and text.isascii() and len(text) < 1000 else text
    except ValueError:
        return text


# Loading and running.
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run folder, or a pack.", show_default=False)]
RunsArgument = Annotated[list[str], typer.Argument(metavar="RUN", help="Run folder or pack; several make an ensemble.")]
CheckpointOption = Annotated[str, name_option("Checkpoint to load: best, last, or a name such as step-000500.")]
DeviceOption = Annotated[
    str,
    name_option(
        "Device to run on: cpu, cuda, mps (Apple), or auto: a GPU if there is one.", "--device", metavar="DEVICE"
    ),
]
BatchTokensOption = Annotated[
    int | None,
    number_option(
        "Number of source tokens in a batch, for each hypothesis; default: 8192, and on a GPU as many as fit.",
        least=1,
        most=16_777_216,
        show_default=False,
    ),
]
EngineOption = Annotated[
    str, name_option("Engine to search with: regard, or ctranslate2, which also takes an exported folder.")
]
QuantizeOption = Annotated[
    str | None,
    name_option(
        "Number format with --engine ctranslate2: float32, float16, int8 or int8_float16; default: float32, or an "
        "exported folder's own.",
        show_default=False,
    ),
]

# Input.
TextOption = Annotated[
    bool, flag_option("--text", "Treat the argument as a text, even a single word, not as a file's name.")
]
EncodingOption = Annotated[
    str | None, text_option("Encoding of the text files that are read; default: utf-8.", metavar="NAME")
]

# Output.
OutOption = Annotated[Path | None, out_option("File to write to; default: standard output.")]
ScoresOption = Annotated[bool, flag_option("--scores", "Also write the score, after a tab.")]
JsonLinesOption = Annotated[bool, flag_option("--json", "Write one JSON object per line.")]
JsonOption = Annotated[bool, flag_option("--json", "Print one JSON object.")]

# Measuring.
SourceOption = Annotated[Path | None, file_option("Text file of sources to translate, one per line.")]
ReferenceOption = Annotated[Path | None, file_option("Text file of references, one per line.")]
AlternativesOption = Annotated[
    bool, flag_option("--alternatives", "Treat lines with the same source as one item with several references.")
]
LowercaseOption = Annotated[bool, flag_option("--lowercase", "Ignore case.")]
TokenizeOption = Annotated[
    str,
    name_option(
        "Tokenisation that BLEU uses: 13a, intl, zh, ja-mecab, ko-mecab, char or none; auto: what suits the script."
    ),
]
FromOneOption = Annotated[bool, flag_option("--from-one", "Count words of the gold links from 1.")]
MetricsOption = Annotated[
    str | None,
    name_option(
        "Metrics, separated by commas: bleu, chrf, ter, exact, character_errors, token_errors, perplexity and lengths.",
        metavar="NAMES",
        show_default="all",
    ),
]
