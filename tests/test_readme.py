"""The README's commands run, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

from regard.models import KINDS
from regard_studies import STUDIES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
# Blocks that need a trained run are run in tests/docs.
BLOCKS = [
    block for block in re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL) if "runs/" not in block
]
LINKS = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not re.match(r"https?:|#", link)]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number):
    exec(compile(BLOCKS[number], "README.md", "exec"), {})


@pytest.mark.parametrize("link", LINKS)
def test_link_leads_somewhere(link):
    assert (ROOT / link.partition("#")[0]).exists()


def test_it_is_short():
    assert len(README) <= 12_000


def test_installation_comes_first():
    """Two commands, then two files to a translation."""
    headings = re.findall(r"^## (.*)", README, re.MULTILINE)
    assert headings[:2] == ["Quickstart", "From two text files to a translation"]


@pytest.mark.parametrize(
    "word", ["fine-tune", "early stopping", "inference", "gradient accumulation", "checkpoint", "overfitting"]
)
def test_it_has_the_words_that_people_search_for(word):
    assert word in README.lower()


def test_every_figure_of_speed_is_of_the_page_of_benchmarks():
    page = (ROOT / "docs" / "guide" / "benchmarks.md").read_text()
    figures = re.findall(r"\d[\d,]*,000?\b|\d\d,\d00|\d,\d00", README.partition("On one H200")[2].partition("\n\n")[0])
    assert len(figures) == 4
    assert all(figure in page for figure in figures)


def test_every_score_is_of_the_page_of_results():
    """Means and deviations are on the page that is generated from the result files."""
    page = (ROOT / "docs" / "results.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| `(\w+)` \| ([^|]*±[^|]*) \|", README, re.MULTILINE)
    assert len(rows) >= 6
    for kind, reached in rows:
        assert re.search(rf"^\| [^|]+ \| `{kind}` \| [^|]+ \| {re.escape(reached)} \|", page, re.MULTILINE), reached


def test_every_kind_of_model_is_in_the_table():
    table = README.partition("| kind | paper |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", table, re.MULTILINE))
    assert rows == {kind.name: kind.paper for kind in KINDS.values()}


def test_the_number_of_studies_is_right():
    assert len(STUDIES) == 14
    assert "[fourteen studies](docs/studies/index.md)" in README
