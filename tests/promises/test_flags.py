"""Every number on the command line has limits: one sentence with the name of the flag refuses a value outside them.

The test reads the flags from the commands themselves, so a new flag needs no entry here.
"""

import importlib
import inspect
import pkgutil
import time
import types
import typing
from typing import Any

import pytest
from typer.testing import CliRunner

import regard.cli.commands
from regard.cli import app

pytestmark = pytest.mark.unchecked  # typer's context has another class than its annotation

NEVER = {  # values that no flag accepts
    "a word": "many",
    "nothing": "",
    "a space": " ",
    "400 digits": "9" * 400,
    "5,000 digits": "9" * 5000,
    "minus 5,000 digits": "-" + "9" * 5000,
    "minus one": "-1",
    "nan": "nan",
    "inf": "inf",
    "-inf": "-inf",
    "1e400": "1e400",
    "1e308": "1e308",
    "2**64": str(2**64),
    "-2**63": str(-(2**63)),
    "hexadecimal": "0x10",
    "lines": "1\n2",
    "ESC": "\x1b[2J5",
    "long text": "x" * 10_000,
    "full-width": "５",  # int() would accept it
    "exponent of a whole number": "1e1e1",
}


def commands() -> dict[str, Any]:
    found = {}
    for module in pkgutil.iter_modules(regard.cli.commands.__path__):
        function = getattr(importlib.import_module(f"regard.cli.commands.{module.name}"), module.name, None)
        if module.name not in ("main", "flags"):
            found[module.name] = function
    return found


def numeric(function: Any) -> list[str]:
    """Return a command's flags that take a number."""
    hints = typing.get_type_hints(function)
    flags = []
    for name in inspect.signature(function).parameters:
        hint = hints[name]
        plain = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if {int, float} & set(plain):
            flags.append(f"--{name.replace('_', '-')}")
    return flags


FLAGS = [(name, flag) for name, function in commands().items() for flag in numeric(function)]
# The arguments that a command requires, so that it has no reason to refuse them before it checks the flag.
OTHERS = {"translate": ["none"], "caption": ["none", "none.png"], "classify": ["none"], "sample": ["none"],
          "score": ["none"], "look": ["none"], "align": ["none", "--source", "none.txt"], "compare": ["a", "b"],
          "bench": ["none"], "data": ["none", "--out", "none"], "study": ["none"], "eval": ["none"],
          "serve": ["none"]}  # fmt: skip


def test_there_are_flags():
    assert {"translate", "caption", "look", "sample", "eval", "compare", "align", "study", "demo", "data", "bench"} <= {
        name for name, _ in FLAGS
    }


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "every"])
@pytest.mark.parametrize(("command", "flag"), FLAGS)
def test_every_number_is_refused_by_its_flag(command, flag, every, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = FLAGS.index((command, flag))
    for i, (name, value) in enumerate(NEVER.items()):
        if not every and (i + place) % 7:
            continue  # this flag is given to another one
        start = time.process_time()
        shown = CliRunner().invoke(app, [command, *OTHERS.get(command, []), f"{flag}={value}"])
        assert time.process_time() - start < 5, name
        assert shown.exit_code == 2, (name, shown.output, shown.exception)
        assert shown.stdout == ""
        message = shown.stderr.removesuffix("\n")
        assert message.startswith(f"regard: {flag}: "), (name, message)
        assert "given, expected" in message, (name, message)
        assert message.isprintable()
        assert len(message) < 300
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", commands())
def test_limits_are_in_the_help(command):
    lines = CliRunner().invoke(app, [command, "--help"], terminal_width=400).stdout.splitlines()
    for flag in [flag for name, flag in FLAGS if name == command]:
        (line,) = [line for line in lines if line.strip().startswith(f"{flag} ")]
        assert "[from 0]" in line or " to " in line[line.index("[") :], line


WRONG = [
    ["nonesuch"],
    ["translate"],
    ["translate", "none", "--nonesuch"],
    ["translate", "none", "--beam"],
    ["look", "--beam=1"],
    ["train", "--set"],
    ["translate", "x\ny"],
    ["train", "a\x1b[2Jb.toml"],
    ["train", "x" * 10_000],
    ["look", "none", "--device", "cuda:" + "9" * 5000],
    ["align", "none", "--source", "a", "--head", "9" * 5000],
    ["study", "scaling", "--seeds", "9" * 5000],
    ["study", "scaling", "--seeds", "²"],
    ["data", "copy", "--out", "x", "--set", "longest=" + "9" * 5000],
    ["data", "copy", "--out", "x", "--set", "symbols=1000000000000"],
]


@pytest.mark.parametrize(
    "typed", WRONG, ids=[" ".join(typed)[:40].encode("unicode_escape").decode() for typed in WRONG]
)
def test_mistakes_of_other_kinds(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, typed)
    assert shown.exit_code == 2, (shown.output, shown.exception)
    assert shown.stderr.startswith("regard: ")
    assert shown.stderr.removesuffix("\n").isprintable()
    assert len(shown.stderr) < 5000
    assert not list(tmp_path.iterdir())
