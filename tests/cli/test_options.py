"""Options that several commands share: numbers within limits, and the options of the search."""

import dataclasses
import importlib
import inspect
import pkgutil
import typing
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.models import OptionInfo
from typer.testing import CliRunner

import regard.cli.commands
from regard.cli import options
from regard.cli.options import (
    check_search,
    field_option,
    number_option,
    read_number,
    with_search,
)
from regard.config import option
from regard.decoding import Options
from regard.errors import CommandError


def parse(option, *arguments: str):
    """Print the value that a command with one option parses."""
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def act(value: Annotated[float | None, option] = None) -> None:
        print(repr(value))

    shown = CliRunner().invoke(app, list(arguments))
    return shown.output.strip() if shown.exit_code == 0 else shown.exit_code


@pytest.mark.parametrize(
    ("text", "read"),
    [("7", 7), ("+7", 7), ("-2", -2), ("0.5", "0.5"), ("seven", "seven"), ("٣", "٣"), ("1e3", "1e3"), ("", "")],
)
def test_whole_numbers_are_read(text, read):
    assert read_number(text, "whole") == read


@pytest.mark.parametrize(("text", "read"), [("7", 7), ("0.5", 0.5), ("1e3", 1000.0), ("half", "half"), ("٣", "٣")])
def test_fractions_are_read(text, read):
    assert read_number(text, "fraction") == read


@pytest.mark.parametrize(
    ("typed", "value"), [("3", "3"), ("9", "9"), ("2", 2), ("10", 2), ("3.5", 2), ("many", 2), ("nan", 2)]
)
def test_a_number_is_within_its_limits(typed, value):
    assert parse(number_option("So many.", least=3, most=9), "--value", typed) == value


@pytest.mark.parametrize(("typed", "value"), [("0.5", "0.5"), ("1", "1.0"), ("0", 2), ("1.1", 2), ("inf", 2)])
def test_a_fraction_may_have_to_be_above_a_limit(typed, value):
    found = parse(number_option("So much.", above=0, most=1, kind="fraction"), "--value", typed)
    assert found == value or float(found) == float(value)


def test_help_names_the_limits():
    assert number_option("So many.", least=3, most=9_000).help == "So many. [3 to 9,000]"
    assert number_option("A seed.", least=0, most=options.SEED).help == "A seed. [from 0]"


@dataclasses.dataclass(frozen=True)
class Oven:
    heat: int = option(180, "degrees", least=50, most=300)
    minutes: float | None = option(None, "time to bake", above=0, most=600)
    fan: bool = option(False, "use the fan")
    mode: Literal["bake", "grill"] = option("bake", "how it heats")
    shelves: tuple[str, ...] = option((), "shelves to use")


@pytest.mark.parametrize(
    ("name", "default", "help", "shown", "hint"),
    [
        ("heat", ..., "Degrees. [50 to 300]", True, int),
        ("heat", None, "Degrees. [50 to 300]", "180", int | None),
        ("minutes", ..., "Time to bake. [above 0 to 600]", False, float | None),
        ("fan", ..., "Use the fan.", True, bool),
        ("mode", ..., "How it heats. [bake or grill]", True, str),
        ("mode", None, "How it heats. [bake or grill]", "bake", str | None),
        ("shelves", None, "Shelves to use; may be repeated.", False, list[str] | None),
    ],
)
def test_an_option_has_help_limits_and_type_of_the_field_that_it_sets(name, default, help, shown, hint):
    annotation, value = field_option(Oven, name, default=default)
    (declared,) = annotation.__metadata__
    assert (typing.get_args(annotation)[0], declared.help, declared.show_default) == (hint, help, shown)
    assert value == (getattr(Oven, name) if default is ... else None)
    assert f"--{name}" in (declared.default, *declared.param_decls)
    assert field_option(Oven, name, "Other words.")[0].__metadata__[0].help.startswith("Other words.")


def test_an_option_of_the_search_has_one_help_in_all_commands():
    helps = dict[str, set[str]]()
    for module in pkgutil.iter_modules(regard.cli.commands.__path__):
        command = getattr(importlib.import_module(f"regard.cli.commands.{module.name}"), module.name)
        for name, hint in typing.get_type_hints(command, include_extras=True).items():
            if module.name != "train" and name in ("beam", "length_penalty", "top_k", "checkpoint", "batch_tokens"):
                helps.setdefault(name, set()).add(hint.__metadata__[0].help)
    assert {name: len(texts) for name, texts in helps.items()} == dict.fromkeys(helps, 1)
    assert len(helps) == 5


SEARCH = [field.name for field in dataclasses.fields(Options)]


def search_app(*names, **words):
    """Return a command with search options between two of its own; it prints its arguments."""
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_search(*names, **words)
    def act(first: Annotated[str, typer.Option()] = "", *, search: dict, last: Annotated[int, typer.Option()] = 0):
        """Act."""
        print(first, last, search)

    return app


def test_the_options_of_the_search_stand_in_the_place_of_the_parameter():
    shown = CliRunner().invoke(search_app("beam", "sample", beam="Width."), ["--help"], terminal_width=200).output
    flags = [line.split()[0] for line in shown.splitlines() if line.strip().startswith("--")]
    assert flags[:4] == ["--first", "--beam", "--sample", "--last"]
    assert "Width. [1 to 10,000]" in shown
    assert "--no-sample" not in shown


def test_a_command_is_given_the_values_of_the_search():
    typed = ["--first", "a", "--beam", "3", "--last", "7"]
    assert CliRunner().invoke(search_app("beam", "longest"), typed).output.strip() == "a 7 {'beam': 3, 'longest': None}"
    every = CliRunner().invoke(search_app(without=["precision"]), []).output
    values = {name: getattr(Options, name) for name in SEARCH if name != "precision"}
    assert every.strip() == f"0 {values}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"beam": 3, "groups": 2}, "--groups: a beam of 3 is not divisible by 2"),
        ({"nbest": 6}, "--nbest: 6 given, expected at most the beam, 5"),
        ({"shortest": 3, "longest": 2}, "--longest: 2 given, less than shortest, 3"),
        ({"top_p": 0.5}, "--top-p: 0.5 given without --sample; add --sample"),
    ],
)
def test_options_of_the_search_are_checked_together(given, message):
    usual = {name: getattr(Options, name) for name in SEARCH}
    assert check_search(usual) == usual
    with pytest.raises(CommandError, match=f"^{message}$"):
        check_search({**usual, **given})


def test_a_command_is_shorter_than_sixty_lines():
    for module in pkgutil.iter_modules(regard.cli.commands.__path__):
        command = getattr(importlib.import_module(f"regard.cli.commands.{module.name}"), module.name)
        assert len(inspect.getsource(command).splitlines()) < 60, module.name


def test_no_option_leaves_its_name_to_its_value():
    """Some versions of typer call an option --DEVICE with the value DEVICE unless the option has a name of its own."""
    for path in sorted(Path(regard.cli.commands.__path__[0]).glob("[a-z]*.py")):
        command = getattr(importlib.import_module(f"regard.cli.commands.{path.stem}"), path.stem)
        for parameter in inspect.signature(command).parameters.values():
            for info in getattr(parameter.annotation, "__metadata__", ()):
                if isinstance(info, OptionInfo) and info.metavar == parameter.name.upper():
                    names = (info.default, *(info.param_decls or ()))  # in an annotation, the first name stands there
                    assert f"--{parameter.name}" in names, (path.stem, parameter.name)
