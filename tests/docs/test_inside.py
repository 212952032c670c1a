"""The figures of `docs/inside/`: training is what it was, to the last bit."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

HOME = Path(__file__).parents[2] / "docs" / "inside"
BEFORE = json.loads((HOME / "before.json").read_text(encoding="utf-8"))
STEPS = 4
pytestmark = pytest.mark.unchecked  # the command line is used, and typer's own classes are not those it documents


@pytest.fixture(scope="module")
def measure():
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("measure", HOME / "measure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_the_tree_is_read(measure):
    found = measure.measure_tree()
    assert found["files"] > found["folders"] > 10
    assert found["median"] < found["longest"][1]


def test_the_counts_are_those_of_the_tree(measure):
    page = (HOME / "house.md").read_text(encoding="utf-8")
    assert page == measure.with_counts(page, measure.measure_tree()), (
        "run `PYTHONPATH=src .venv/bin/python docs/inside/measure.py page`"
    )


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
    """Every name that the table of renamed things leads to: a module, or what its file speaks of."""
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
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        known = {word for node in nodes for word in (getattr(node, "name", None), getattr(node, "id", None))}
        known |= {getattr(node, "attr", None) for node in nodes} | {getattr(node, "arg", None) for node in nodes}
        wrong += [name] * (not set(rest) <= known)
    assert wrong == []
