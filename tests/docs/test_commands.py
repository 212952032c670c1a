"""Every command that the guide and the README show is one that `regard` takes, options, keys and values."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from regard.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


def commands() -> dict[str, list[str]]:
    """What stands behind `regard`, in shell blocks and between backticks; the page is in the key."""
    found = {}
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        fenced = re.findall(r"^```(\S*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        blocks = [block for language, block in fenced if language in ("", "sh")]
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()]
        lines += re.findall(r"`([^`\n]+)`", prose)
        for line in lines:
            start = re.match(r"(?:torchrun .* -m )?regard (?=[a-z])", line)
            if start:
                found[f"{page.name}: {line.strip()}"] = shlex.split(line[start.end() :], comments=True)
    return found


COMMANDS = commands()


def test_there_are_commands():
    assert len(COMMANDS) > 25
    assert {words[0] for words in COMMANDS.values()} >= {"train", "data", "models", "demo"}


@contextlib.contextmanager
def parsed(words: list[str]) -> Iterator[tuple[Any, Any]]:
    """The command, and its context with every option read; what does not exist is an error of the parser."""
    group = typer.main.get_command(app)
    name, rest = words[0], words[1:]
    with (
        group.make_context("regard", [name]) as above,
        group.commands[name].make_context(name, rest, parent=above) as context,
    ):
        yield group.commands[name], context


@pytest.mark.parametrize("line", COMMANDS)
def test_command_is_understood(line):
    with parsed(COMMANDS[line]):
        pass


@pytest.mark.parametrize("line", [line for line, words in COMMANDS.items() if words[0] == "train" and words[1:]])
def test_training_would_start(line, desk, capsys):
    """Up to the point where the data is read: keys and values, the shipped configurations, a run to go on with."""
    places = {"RUN": "runs/en-de", "CONFIG": "configs/files.toml"}
    with parsed([*(places.get(word, word) for word in COMMANDS[line]), "--check"]) as (command, context):
        command.invoke(context)
    assert capsys.readouterr() == ("the configuration is right\n", "")


@pytest.mark.parametrize("line", [line for line, words in COMMANDS.items() if words[0] == "data" and words[1:]])
def test_data_is_written(line, desk, tmp_path):
    words = list(COMMANDS[line])
    if "--out" in words:
        words[words.index("--out") + 1] = str(tmp_path)
        words += ["--count", "20", "--valid", "5", "--test", "0"]
    with parsed(words) as (command, context):
        command.invoke(context)
    gold = "train.gold.jsonl" if "scenes" in words else "train.align"
    assert "--out" not in words or (tmp_path / gold).read_text().count("\n") == 20
