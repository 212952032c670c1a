"""Options that several commands have: numbers within limits, and the search's own words."""

import dataclasses
import importlib
import pkgutil
import typing
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import regard.cli.commands
from regard.cli import options
from regard.cli.options import SEARCH, number_option, read_number, search_option
from regard.decoding.options import Options


def parse(option, *arguments: str):
    """What a command with one option makes of what is typed."""
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


def test_the_search_has_its_own_words():
    assert search_option("beam").help.startswith("Number of hypotheses (beam size)")
    assert set(SEARCH) == {field.name for field in dataclasses.fields(Options)}


def test_an_option_of_the_search_has_one_help_in_all_commands():
    helps = dict[str, set[str]]()
    for module in pkgutil.iter_modules(regard.cli.commands.__path__):
        command = getattr(importlib.import_module(f"regard.cli.commands.{module.name}"), module.name)
        for name, hint in typing.get_type_hints(command, include_extras=True).items():
            if name in ("beam", "length_penalty", "top_k", "checkpoint", "batch_tokens"):
                helps.setdefault(name, set()).add(hint.__metadata__[0].help)
    assert {name: len(texts) for name, texts in helps.items()} == dict.fromkeys(helps, 1)
    assert len(helps) == 5
