"""What the README says runs, and what it links to is there."""

import json
import re
from pathlib import Path

import pytest

from regard.models.kinds import KINDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
# What needs a trained run is run where there is one, in tests/docs.
BLOCKS = [
    block for block in re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL) if "runs/" not in block
]
LINES = re.findall(r"^\| .* \| `([^`]+)` \|$", README, re.MULTILINE)
LINKS = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not re.match(r"https?:|#", link)]


@pytest.fixture(scope="module")
def tour():
    """The names that the tour leaves behind."""
    names: dict[str, object] = {}
    exec(compile(BLOCKS[0], "README.md", "exec"), names)
    return names


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number):
    exec(compile(BLOCKS[number], "README.md", "exec"), {})


@pytest.mark.parametrize("line", LINES)
def test_line_of_the_table_runs(tour, line):
    exec(compile(line, "README.md", "exec"), dict(tour))


@pytest.mark.parametrize("link", LINKS)
def test_link_leads_somewhere(link):
    assert (ROOT / link.partition("#")[0]).exists()


def test_every_row_of_the_table_is_read():
    table = README.partition("| word |")[2].partition("\n\n")[0]
    assert table.count("\n| ") == len(LINES) > 40


def test_every_figure_was_measured():
    """A ratio in the README stands in the benchmark's own file."""
    costs = README.partition("## What it costs")[2].partition("\n## ")[0]
    figures = re.findall(r"\| ([0-9.]+) × [^|]+\|$", costs, re.MULTILINE)
    files = {link for link in re.findall(r"\]\(([^)]+)\)", costs) if link.endswith(".json")}
    results = [result for file in files for result in json.loads((ROOT / file).read_text())["results"]]
    measured = {f"{result['ratio']:.2f}" for result in results if result["ratio"] is not None}
    assert len(figures) >= 8
    assert set(figures) <= measured


def test_every_score_is_of_the_page_of_results():
    """Means and deviations stand on the page that is written from the files of results."""
    page = (ROOT / "docs" / "results.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| `(\w+)` \| ([^|]*±[^|]*) \|", README, re.MULTILINE)
    assert len(rows) >= 6
    for kind, reached in rows:
        assert re.search(rf"^\| [^|]+ \| `{kind}` \| [^|]+ \| {re.escape(reached)} \|", page, re.MULTILINE), reached


def test_every_kind_of_model_is_in_the_table():
    table = README.partition("| kind | paper |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", table, re.MULTILINE))
    assert rows == {kind.name: kind.paper for kind in KINDS.values()}


def test_every_promise_is_there():
    promises = {path.name for path in (ROOT / "tests" / "promises").glob("test_*.py")}
    assert {Path(link).name for link in LINKS if link.startswith("tests/promises/")} == promises


def test_the_tree_is_what_is_there():
    (tree,) = re.findall(r"^```\n(src/regard/\n.*?)^```", README, re.MULTILINE | re.DOTALL)
    inside, beside = re.findall(r"^  (\w[\w./]*)", tree, re.MULTILINE), re.findall(r"^(\w[\w./]*)", tree, re.MULTILINE)
    said = {name.rstrip("/") for name in inside} | {"__init__.py", "__main__.py", "__pycache__"}
    there = {path.name for path in (ROOT / "src" / "regard").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert said == there | {"__pycache__"}
    assert all((ROOT / name).exists() for name in beside)
