"""The notebook runs from top to bottom, and its saved output is what it prints."""

import re
import sys
import warnings
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "attention-from-one-query.ipynb"
STEPS = [
    "one query",
    "many queries",
    "keys and values",
    "self",
    "permuted",
    "positions",
    "masked",
    "heads",
    "a grid",
    "a block",
]
BEGINNING = """
import torch
from regard import Heads, inspection

look = Heads(16, heads=2).look(torch.randn(1, 3, 16), torch.randn(1, 4, 16))
source, target = ["I", "ate", "pizza", "."], ["ich", "aß", "Pizza"]
"""
CALLS = [
    "inspection.picture(look, source=source, target=target)",
    "inspection.heatmap(look, source, target)",
    "inspection.page(look, source=source)",
]
PYPLOT = """
import sys

text = inspection.svg(inspection.heatmap(look, source, target))
print("matplotlib.pyplot" in sys.modules)
import matplotlib.pyplot
"""
SHOWS = [BEGINNING, *CALLS, PYPLOT, *CALLS]


@pytest.fixture(scope="module")
def saved():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def session():
    """Run the cells that show something, before and after pyplot is imported, and then the notebook, in one kernel.

    The notebook imports pyplot, so it comes last; `%reset` removes the names of the earlier cells.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    before = [nbformat.v4.new_code_cell(cell) for cell in (*SHOWS, "%reset -f")]
    notebook.cells = [*before, *notebook.cells]
    cells = execute(notebook).cells
    return cells[len(before) :], cells[: len(SHOWS)]


@pytest.fixture
def executed(session):
    return session[0]


@pytest.fixture
def shows(session):
    return session[1]


def execute(notebook):
    """Run every cell, and store the output in the notebook."""
    client = NotebookClient(notebook, timeout=120)
    # Any kernel named python3 may be registered on this machine: use the interpreter that runs this test.
    client.km = client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the messages between kernel and client
        client.execute()
    return notebook


def printed(cells):
    """Return what each code cell printed, joined, and the MIME types of what it displayed."""
    return [
        [
            "".join("".join(out.get("text", "")) for out in cell.outputs),
            *(sorted(out["data"]) for out in cell.outputs if "data" in out),
        ]
        for cell in cells
        if cell.cell_type == "code"
    ]


def test_every_cell_runs(executed):
    code = [cell for cell in executed if cell.cell_type == "code"]
    first = len(SHOWS) + 2
    assert [cell.execution_count for cell in code] == list(range(first, first + len(code)))
    outputs = [out for cell in code for out in cell.outputs]
    assert not [out for out in outputs if out.output_type == "error" or out.get("name") == "stderr"]


def test_saved_outputs_are_what_it_prints(saved, executed):
    def without_numbers(cells):  # random numbers may differ between machines; shapes and words do not
        return [[re.sub(r"\d+\.\d+", "…", text), *shown] for text, *shown in cells]

    assert without_numbers(printed(saved.cells)) == without_numbers(printed(executed))


def test_takes_every_step(saved):
    text = "\n".join(cell.source for cell in saved.cells if cell.cell_type == "markdown")
    assert [title.lower() for title in re.findall(r"^## \d+\. (.*)$", text, re.MULTILINE)] == STEPS


def test_is_clean(saved):
    nbformat.validate(saved)
    assert NOTEBOOK.stat().st_size < 300_000
    for word in ("/home/", "/tmp/", "/usr/", "site-packages"):
        assert word not in NOTEBOOK.read_text()


def test_pyplot_is_not_imported(shows):
    """No drawing imports pyplot: a figure belongs to its caller."""
    (cell,) = (cell for cell in shows if cell.source == PYPLOT)
    assert [out.text for out in cell.outputs] == ["False\n"]


@pytest.mark.parametrize("last", [-len(CALLS) - 1, None], ids=["alone", "beside pyplot"])
def test_pages_and_pictures_show_themselves(shows, last):
    """The last line of a cell displays once, whether the notebook uses pyplot or not."""
    cells = shows[:last][-len(CALLS) :]
    assert [cell.source for cell in cells] == CALLS
    for cell, kind in zip(cells, ("image/png", "image/png", "text/html"), strict=True):
        (shown,) = cell.outputs
        assert shown.output_type == "execute_result"
        assert len(shown.data[kind]) > 1000
