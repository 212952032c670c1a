"""What the site generates from the code: every command and option, every public name with its shapes, the notebook."""

import importlib
import inspect
import json
import re
import sys
from pathlib import Path

import pytest
import typer

from regard.attention import Dot, Score
from regard.cli import SECTIONS, app

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"<!-- module: (regard[\w.]*)(?:: ([\w, ]+))? -->")
PUBLIC = [
    each for path in sorted((ROOT / "docs" / "reference").glob("*.md")) for each in MARK.findall(path.read_text())
]


@pytest.fixture(scope="module")
def generated():
    """Import the Sphinx extension."""
    folder = str(ROOT / "docs" / "_extensions")
    sys.path.insert(0, folder)
    yield importlib.import_module("generated")
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def pages(generated):
    """Return the complete text of every page with generated parts."""
    folders = ROOT / "docs" / "reference", ROOT / "docs" / "attention"
    found = {path.stem: path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("*.md")}
    return {name: generated.replace_marks(text) for name, text in found.items() if generated.MARK.search(text)}


def test_only_pages_of_the_reference_and_the_notebook_are_generated(generated):
    """Other pages may have marks of their own, like the results with their table."""
    found = (ROOT / "docs").rglob("*.md")
    marked = {path.relative_to(ROOT / "docs") for path in found if generated.MARK.search(path.read_text("utf-8"))}
    assert {str(path.parent) for path in marked} == {"reference", "attention"}


def section(text, heading):
    """Return the text below a heading, up to the next heading of its level or above."""
    level = len(heading.split()[0])
    (start,) = re.finditer(rf"^{re.escape(heading)}$", text, re.MULTILINE)
    return re.split(rf"^#{{1,{level}}} ", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_command_stands_in_the_group_that_help_has(pages):
    group = typer.main.get_command(app)
    found = {}
    for title in re.findall(r"^## (.*)$", pages["commands"], re.MULTILINE):
        found[title] = re.findall(r"^### regard (.*)$", section(pages["commands"], f"## {title}"), re.MULTILINE)
    assert list(found) == list(SECTIONS)
    described = [name for names in found.values() for name in names]
    assert sorted(described) == sorted(name for name, each in group.commands.items() if not each.hidden)
    assert all(found[title][: len(names)] == list(names) for title, names in SECTIONS.items())


@pytest.mark.parametrize("name", sorted(typer.main.get_command(app).commands))
def test_every_option_has_its_line(pages, name):
    command = typer.main.get_command(app).commands[name]
    text = section(pages["commands"], f"### regard {name}")
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    assert options
    for option in options:
        (line,) = re.findall(rf"^\| `[^`]*{option.opts[-1]}(?![\w-])[^`]*` \| (.*) \|$", text, re.MULTILINE)
        words = re.findall(r"\w+", option.help or "")
        assert re.findall(r"\w+", line.replace("\\", ""))[: len(words)] == words
    assert all(example in text for example in command.epilog.split("\n"))


def test_the_names_that_people_use_are_marked():
    marked = dict(PUBLIC)
    assert {"regard", "regard.errors", "regard.run", "regard.attention.score"} & set(marked)
    described = {each for names in marked.values() for each in names.split(", ")}
    for name in ("score", "span", "weighting", "positions", "grid"):
        described |= set(importlib.import_module(f"regard.attention.{name}").__all__)
    assert {
        "Attention",
        "Heads",
        "Learned",
        "Look",
        "watch",
        "exhibit_of",
        "page",
        "picture",
        "Translation",
    } <= described


@pytest.mark.parametrize(("name", "chosen"), PUBLIC)
def test_every_public_name_is_described_once(pages, name, chosen):
    module = importlib.import_module(name)
    text = "\n".join(pages.values())
    for public in chosen.split(", ") if chosen else module.__all__:
        if public[0] != "_":
            described = section(text, f"### {public}")
            doc = inspect.getdoc(getattr(module, public)) or ""
            assert doc.partition("\n")[0] in described


def test_signatures_have_shapes(pages):
    text = section(pages["attention"], "#### Attention.forward")
    assert 'query: Float[Tensor, "*bq n dq"] | None,' in text
    assert ') -> Float[Tensor, "*b n dv"]' in text
    assert "Dot(scaled: bool = False)" in section(pages["attention"], "### Dot")


def test_methods_of_a_class_above_are_described_too(pages):
    assert "forward" not in vars(Dot)
    assert Score.forward.__doc__.partition("\n")[0] in section(pages["attention"], "#### Dot.forward")
    assert "extra_repr" not in pages["attention"]  # inherited from torch


ATTENTION = {
    "Attention": ["forward", "prepare", "cache", "look", "backend", "plan", "fold"],
    "Heads": ["forward", "step", "look", "backend", "plan", "prepare", "cache"],
    "Cache": ["extend", "select_", "put_", "take", "float", "copy"],
    "Prepared": ["float", "copy"],
    "Block": ["forward"],
    "GridSelfAttention": ["forward", "look"],
    "GridAttention": ["forward", "prepare", "look"],
}


@pytest.mark.parametrize("name", ATTENTION)
def test_methods_for_other_parts_of_regard_are_left_out(pages, name):
    text = section(pages["attention"], f"### {name}")
    assert re.findall(rf"^#### {name}\.(.*)$", text, re.MULTILINE) == ATTENTION[name]


def test_the_reference_of_a_run_has_the_names_that_a_user_needs(pages):
    text = section(pages["python"], "### Run")
    methods = """tokenizers device set_languages unknown task translate stream score sample caption captions classify
    align links evaluate force engine alignment_settings can require"""
    assert re.findall(r"^#### Run\.(.*)$", text, re.MULTILINE) == methods.split()
    assert all(f"`{name}`" in text for name in ("folder", "settings", "model", "step", "labels"))


def test_every_cell_of_the_notebook_is_on_its_page(pages):
    cells = json.loads((ROOT / "notebooks" / "attention-from-one-query.ipynb").read_text(encoding="utf-8"))["cells"]
    page = pages["notebook"]
    assert all("".join(cell["source"]) in page for cell in cells)
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    drawings = [output for output in outputs if {"image/png", "image/svg+xml"} & set(output.get("data", ()))]
    assert page.count("data:image/png;base64,") + page.count('<div class="drawing">') == len(drawings) > 3
    printed = ["".join(output["text"]).rstrip() for output in outputs if "text" in output]
    assert printed
    assert all(f"```text\n{text}\n```" in page for text in printed)


def test_help_is_not_markup(generated):
    escape = generated.command_reference.escape
    assert escape("a_b | `x|y` *z* [default: 1] with --out") == (r"a\_b \| `x\|y` \*z\* \[default: 1\] with `--out`")
