"""Commands as typer runs them: what their help looks like, and old names of their options."""

import importlib
import re
import shlex

import pytest
import typer
from cli.typing_in import Command
from typer.testing import CliRunner

from regard.cli.command import OLD_NAMES, SECTIONS
from regard.cli.program import app

pytestmark = pytest.mark.unchecked  # typer's own classes are not those it documents
GROUP = typer.main.get_command(app)
MODULES = {"import": "import_"}  # of commands whose names Python keeps for itself
NAMES = sorted(GROUP.commands)


def help_of(name: str, width: int = 80) -> str:
    return CliRunner().invoke(app, [name, "--help"], terminal_width=width).stdout


def test_every_command_stands_in_one_section():
    assert sorted(name for names in SECTIONS.values() for name in names) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_summary_is_one_whole_line(name):
    summary = GROUP.commands[name].short_help
    assert len(summary) <= 65  # beside the longest name, on 80 columns
    assert not summary.endswith(".")
    assert summary == help_of(name, 200).splitlines()[2].strip().removesuffix(".")


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_two_examples(name):
    *_, first, second = (line.strip() for line in help_of(name).rstrip("\n").splitlines())
    examples = importlib.import_module(f"regard.cli.commands.{MODULES.get(name, name)}").EXAMPLES
    assert (first, second) == examples
    assert max(map(len, examples)) <= 78
    for example in examples:
        program, command, *words = shlex.split(example.partition(" > ")[0])
        assert (program, command) == ("regard", name)
        with GROUP.make_context("regard", [name]) as above:  # an option that is not there is an error
            GROUP.commands[name].make_context(name, words, parent=above)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_named_as_people_name_them(name):
    text = help_of(name)
    assert not re.search(r"<[a-z]|\bINTEGER\b|\{[a-z]+\}|list\[", text), "a type of Python, not a name for people"
    for option in GROUP.commands[name].params:
        if option.param_type_name == "option" and not option.is_flag:
            assert re.fullmatch(r"[A-Z][A-Z=,…]*( or [A-Z]+)?", option.metavar or ""), option.name
    named = {each for option in GROUP.commands[name].params for each in option.opts}
    assert ("--out" in named) == ("-o" in named)
    assert "--output" not in named


@pytest.mark.parametrize("name", OLD_NAMES)
def test_old_names_work_and_are_not_listed(name):
    known = {each for option in GROUP.commands[name].params for each in option.opts}
    for old, new in OLD_NAMES[name].items():
        assert new in known
        assert not re.search(rf"{old}\b", help_of(name, 200))
        option = next(each for each in GROUP.commands[name].params if new in each.opts)
        value = [] if option.is_flag else ["a.txt"]
        for typed in (old, new):
            with GROUP.make_context("regard", [name]) as above:
                context = GROUP.commands[name].make_context(name, ["run", typed, *value], parent=above)
            assert str(context.params[option.name]) == (value[0] if value else "True")


def test_a_mistake_with_an_old_name_is_one_sentence():
    assert Command("eval").refused("run", "--output").startswith("option '--output' requires an argument")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "--stesp", "5"], "no such option: --stesp; did you mean --steps?"),
        (["align", "run", "--layer", "9"], "no such option: --layer; see regard align --help"),
        (["trian"], "no such command 'trian'; did you mean train?"),
        (["paint"], "no such command 'paint'; see regard --help"),
        (["train", "a.en", "a.de", "b.de"], "more arguments than expected: a.de b.de; see regard train --help"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(words, said):
    assert Command(words[0]).refused(*words[1:]).replace("see root", "see regard") == said
