"""The figures of `docs/inside/`: training is bit by bit as before, and follows the documented paths."""

import ast
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import regard

HOME = Path(__file__).parents[2] / "docs" / "inside"
BEFORE = json.loads((HOME / "before.json").read_text(encoding="utf-8"))
STEPS = 4
MORE = 5  # the pages tolerate so many more calls
pytestmark = pytest.mark.unchecked  # the command line is used, and typer uses other classes than it documents


@pytest.fixture(scope="module")
def measure():
    """Import the script as a module."""
    spec = importlib.util.spec_from_file_location("measure", HOME / "measure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """Return the counts of `measure.py walk`, run in a new process: other tests have filled the caches of this one."""
    out = tmp_path_factory.mktemp("walk") / "walk.json"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(regard.__file__).parents[1])}
    subprocess.run([sys.executable, HOME / "measure.py", "walk", "--json", out], env=environment, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["transformer", "rnnsearch", "han"])
def test_the_losses_are_those_of_before(measure, name):
    before = BEFORE["losses"][name]
    assert len(before) == len(set(before)) == 50
    found = measure.losses(name, STEPS)
    if BEFORE["losses"]["signature"] == measure.signature():
        assert found == before[:STEPS]
    numbers = [float.fromhex(each) for each in found]
    assert numbers == pytest.approx([float.fromhex(each) for each in before[:STEPS]], rel=1e-5)


def test_every_measure_was_taken_before(measure):
    assert set(BEFORE) == set(measure.MEASURES)


def test_the_counts_are_those_of_the_tree(measure):
    page, found = (HOME / "house.md").read_text(encoding="utf-8"), measure.measure_tree()
    assert found["files"] > found["folders"] > 10
    assert found["median"] < found["longest"][1]
    assert page == measure.with_counts(page, found), "run `PYTHONPATH=src .venv/bin/python docs/inside/measure.py page`"


def test_the_walks_lead_through_the_files_of_the_page(measure, walked):
    page = (HOME / "walk.md").read_text(encoding="utf-8")
    for name, (title, _) in measure.SECTIONS.items():
        section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        files = re.findall(r"^\| `([\w/]+\.py)` \|", section, re.MULTILINE)
        assert files == [step[0] for step in walked["walk"][name]["walk"]], f"{name}: run `measure.py walk`"


def test_the_walks_have_not_grown(measure, walked):
    pages = (HOME / "walk.md").read_text(encoding="utf-8"), measure.walk_page(walked["walk"])
    told, found = (numbers_of(page.partition("\n## ")[0], r"\| ([^|]+) \| ([\d,]+) \|") for page in pages)
    titles = [title for title, _ in found]
    assert titles == [title for title, _ in told]  # also the titles of searches, which name their number of steps
    assert sum("a step, the median of" in title for title in titles) == 2
    for (title, (calls,)), (_, (most,)) in zip(found, told, strict=True):
        assert calls <= most + MORE, title


def test_the_paths_have_not_grown(measure, walked):
    page = (HOME / "house.md").read_text(encoding="utf-8")
    for title in measure.PATHS.values():
        row = rf"\| ({re.escape(title)}) \| [^|]+ \| ([\d, ]+) \|"
        ((_, told),), ((_, found),) = (
            numbers_of(each, row) for each in (page, measure.with_paths(page, walked["files"]))
        )
        assert len(told) == len(title.rpartition(": ")[2].split(", "))
        assert found[0] <= told[0], title  # the number of files
        assert all(one <= other + MORE for one, other in zip(found, told, strict=True)), title


def numbers_of(page, row):
    """Return the title and the numbers of each row of a page's table."""
    rows = re.findall(rf"^{row}", page, re.MULTILINE)
    return [(title, [int(each.replace(",", "")) for each in numbers.split(", ")]) for title, numbers in rows]


def test_the_tree_is_what_is_there():
    root = HOME.parents[1]
    page = (HOME / "house.md").read_text(encoding="utf-8")
    (tree,) = re.findall(r"^```\n(src/regard/\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    inside, beside = re.findall(r"^  (\w[\w./]*)", tree, re.MULTILINE), re.findall(r"^(\w[\w./]*)", tree, re.MULTILINE)
    names = {name.rstrip("/") for name in inside} | {"__init__.py", "__main__.py", "__pycache__"}
    there = {path.name for path in (root / "src" / "regard").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert names == there | {"__pycache__"}
    assert all((root / name).exists() for name in beside)


def test_a_new_name_is_there():
    """Every name in the table of renamed things exists: it is a module, or its file contains the name."""
    packages = HOME.parents[1] / "src"
    rows = re.findall(r"^\| `[^`]+` \| (.+) \|$", (HOME / "names.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 600
    wrong = []
    for name in {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}:
        source = packages if name.startswith("regard_") else packages / "regard"
        parts = name.split(".")
        files = [
            (path, parts[count:])
            for count in range(len(parts), 0, -1)
            for path in (
                source.joinpath(*parts[: count - 1], f"{parts[count - 1]}.py"),
                source.joinpath(*parts[:count], "__init__.py"),
            )
            if path.is_file()
        ]
        if not files:
            wrong.append(name)
            continue
        path, rest = files[0]
        if rest and not set(rest) <= known_in(path):
            wrong.append(name)
    assert wrong == []


@functools.cache
def known_in(path):
    """Return the names that a file defines or uses."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {getattr(node, kind, None) for node in nodes for kind in ("name", "id", "attr", "arg")}


def test_where_each_thing_is():
    rows = re.findall(
        r"^\| (\d+) \| .+ \| `(\S+)` \| `(\w+)` \|$", (HOME / "where.md").read_text("utf-8"), re.MULTILINE
    )
    assert [int(number) for number, _, _ in rows] == list(range(1, 26))
    for _, path, name in rows:
        text = (Path(regard.__file__).parent / path).read_text("utf-8")
        assert re.search(rf"^(class |def |async def )?{name}\b", text, re.MULTILINE), f"{path} does not define {name}"
