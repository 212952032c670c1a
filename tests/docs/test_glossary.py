"""Each term of the literature has a line of code that runs after the tour of the interface."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "attention" / "glossary.md").read_text()
LINES = re.findall(r"^\| .* \| `([^`]+)` \|$", PAGE.partition("| word |")[2], re.MULTILINE)


@pytest.fixture(scope="module")
def tour():
    """Run the tour and return the names that it defines."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "glossary.md", "exec"), names)
    return names


@pytest.mark.parametrize("line", LINES)
def test_line_of_the_table_runs(tour, line):
    exec(compile(line, "glossary.md", "exec"), dict(tour))


def test_every_row_of_the_table_is_read():
    table = PAGE.partition("| word |")[2].partition("\n\n")[0]
    assert table.rstrip().count("\n| ") == len(LINES) > 40
