"""Every command, option and key that a page, a notebook, a shipped configuration or a message names exists."""

import ast
import contextlib
import dataclasses
import itertools
import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer
from documented import ROOT, SHELL, spans, texts

from regard.cli import app
from regard.cli.program import OLD_NAMES
from regard.data import DataSettings, TokenizerSettings
from regard.models import KINDS, Model
from regard.training import TrainingSettings

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OTHERS = {  # options of other programs, by a word in the same code or sentence
    "torchrun": {"--nproc-per-node", "--nnodes", "--rdzv-backend", "--rdzv-endpoint"},
    "regard_bench.quality": {"--together", "--seeds", "--minutes"},
    "sacreBLEU": {"--paired-bs"},
    "pip install": {"--no-deps"},
    "curl": {"--json"},
    "hf download": {"--local-dir"},
}
STYLE = re.compile(r"var\(--|style=\"--|\{[^}]*--[\w-]+:")  # names in CSS look like options
TEXTS = texts()


def commands() -> dict[str, list[str]]:
    """Return the words after `regard` in each command; the key names the page and the line."""
    found = {}
    for page, text in TEXTS.items():
        for line in (each for lines in spans(text) for each in lines):
            start = re.match(r"!?(?:torchrun .* -m )?regard (?=[a-z])", line)
            if start:
                words = shlex.split(line[start.end() :], comments=True)
                found[f"{page}: {line.strip()}"] = list(itertools.takewhile(lambda word: word not in SHELL, words))
    return found


COMMANDS = commands()


@cache
def command_group() -> Any:
    """Return the click group behind `regard`."""
    return typer.main.get_command(app)


@cache
def options(name: str) -> frozenset[str]:
    """Return the options of a command."""
    group = command_group()
    return frozenset(each for option in group.commands[name].params for each in (*option.opts, *option.secondary_opts))


@cache
def every_option() -> frozenset[str]:
    group = command_group()
    above = {each for option in group.params for each in option.opts}
    return frozenset(above.union(*map(options, group.commands), {"--help"}))


def belong(flags: list[str], known: set[str] | frozenset[str], text: str) -> list[str]:
    """Return the options that neither the command nor another program has."""
    others = [flags_ for word, flags_ in OTHERS.items() if word in text]
    return [flag for flag in flags if flag not in known.union(*others)]


def test_there_are_commands():
    assert len(COMMANDS) > 25
    assert {words[0] for words in COMMANDS.values()} >= {"train", "data", "models", "demo"}


@contextlib.contextmanager
def parsed(words: list[str]) -> Iterator[tuple[Any, Any]]:
    """Yield a command and its parsed context; an unknown option raises the parser's error."""
    group = command_group()
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
    """Check keys and values, the shipped configurations and a run to resume, up to the point where data is read."""
    places = {"RUN": "runs/en-de", "CONFIG": "configs/files.toml", "NAME": "configs/files.toml"}
    with parsed([*(places.get(word, word) for word in COMMANDS[line]), "--check"]) as (command, context):
        command.invoke(context)
    shown = capsys.readouterr()
    assert shown.out == "the configuration is valid\n"
    assert all(
        " pairs are few to learn from alone, " in remark for remark in shown.err.splitlines()
    )  # a remark on the small data of the test


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


@pytest.mark.parametrize("page", TEXTS)
def test_every_option_between_backticks_is_of_a_command_of_the_page(page):
    """`--valid-documents valid.tsv` in a sentence is an option of a command on the same page."""
    quoted = spans(TEXTS[page])[1]
    named = {words[0] for line, words in COMMANDS.items() if line.startswith(f"{page}: ")}
    named |= {word for word in quoted if re.fullmatch(r"[a-z]+", word)}  # `eval` in a table of commands
    group = command_group()
    everywhere = frozenset.intersection(*map(options, group.commands))  # options that every command has
    known = set().union({"--help", "--version"}, everywhere, *(options(name) for name in named & set(group.commands)))
    wrong = belong([flag for each in quoted for flag in FLAG.findall(each)], known, TEXTS[page])
    assert wrong == [], f"{page} names options that none of {sorted(named & set(group.commands))} has"


# Files that name an option; only their tests parse the options.
FILES = [path for path in sorted((ROOT / "src").rglob("*.py")) if FLAG.search(path.read_text(encoding="utf-8"))]


def messages(source: str) -> str:
    """Return the strings of a source file that name an option."""
    nodes = ast.walk(ast.parse(source))
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join(text for text in strings if FLAG.search(text) and not STYLE.search(text))


@pytest.mark.parametrize("file", [path.relative_to(ROOT / "src").as_posix() for path in FILES])
def test_every_option_that_the_program_speaks_of_is_one(file):
    source = (ROOT / "src" / file).read_text(encoding="utf-8")
    text = messages(source)
    own = set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', source))  # options of a program of its own
    if file == "regard/cli/program.py":
        own |= {old for names in OLD_NAMES.values() for old in names}
    assert belong(FLAG.findall(text), every_option() | own, text) == []


KEYS = {
    "data": {field.name for field in dataclasses.fields(DataSettings)},
    "tokenizer": {field.name for field in dataclasses.fields(TokenizerSettings)},
    "training": {field.name for field in dataclasses.fields(TrainingSettings)},
    "model": {field.name for kind in KINDS.values() for field in dataclasses.fields(kind.config)}
    | {"kind", "preset", *dir(Model)},  # a page may also name attributes of a model in Python
}
KEY = re.compile(r"(?<![\w./-])(data|tokenizer|training|model)\.(?!json|safetensors|bin\b|py\b)([a-z_]+)(?![\w(./])")


@pytest.mark.parametrize("page", [page for page, text in TEXTS.items() if KEY.search(text)])
def test_every_key_is_one(page):
    """This covers `data.cache` in a sentence, and `--set model.span=local-p` in a command."""
    lines = [each for lines in spans(TEXTS[page]) for each in lines]
    wrong = [found[0] for line in lines for found in KEY.finditer(line) if found[2] not in KEYS[found[1]]]
    assert wrong == []


def test_a_wrong_word_would_be_found():
    assert belong(["--valid-papers"], every_option(), "") == ["--valid-papers"]
    assert belong(["--nnodes"], every_option(), "regard train") == ["--nnodes"]
    assert belong(["--nnodes"], every_option(), "torchrun -m regard train") == []
    assert [found[0] for found in KEY.finditer("training.stps=3 and run.model.limit")] == ["training.stps"]
    assert spans("`--a\n3` and\n```sh\nregard x \\\n  --b\n```\n") == (["regard x    --b"], ["--a 3"])
