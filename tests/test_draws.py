"""A test's draws depend on the seed alone."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import draws
import pytest

TESTS = Path(__file__).parent
DRAWING = """
import random
import sys
import torch
from hypothesis import given, settings, strategies
{first}
numbers = []

@settings(max_examples=20)
@given(strategies.lists(strategies.integers() | strategies.text()))
def test_drawing(values):
    numbers.append((values, random.random(), float(torch.rand(()))))

def test_writing(request):
    print("drew", repr([*numbers, random.random(), float(torch.rand(()))]), file=sys.__stderr__)
"""


def drew(folder, seed, first=""):
    """Return the draws of a test file, in a process of its own and with `tests/conftest.py`."""
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "test_drawing.py").write_text(DRAWING.format(first=first), encoding="utf-8")
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS.as_posix()}\nmarkers =\n  draws\n")
    (folder / "local.py").write_text("NUMBERS = 918273, 645546, 771177\n")
    command = [sys.executable, "-m", "pytest", "-qs", "-m", "draws", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    environment = {**os.environ, "REGARD_SEED": str(seed), "REGARD_NO_TYPECHECK": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run([*command, folder], capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall("^drew (.*)$", done.stderr, re.MULTILINE)[0]


def test_the_same_seed_draws_the_same_and_another_seed_something_else(tmp_path):
    """Imported modules have no effect: Hypothesis would otherwise take numbers from the source of local ones."""
    first = drew(tmp_path, 3)
    assert drew(tmp_path, 3, f"sys.path.append({str(tmp_path)!r}); import local") == first
    assert drew(tmp_path, 4) != first
    assert not (tmp_path / ".hypothesis" / "examples").exists()


def test_no_test_draws_from_a_generator_without_a_seed():
    """No test uses a new unseeded generator, nor numpy's global one, which nothing seeds."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            unseeded = name in ("random.Random", "np.random.default_rng", "Random") and not (node.args or node.keywords)
            shared = re.fullmatch(r"(np|numpy)\.random\.(?!default_rng|seed|get_state|Generator|RandomState)\w+", name)
            if unseeded or shared:
                found.append(f"{path.relative_to(TESTS)}:{node.lineno}: {name}")
    assert found == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from hypothesis import given", True),
        ("x = torch.randn(3)", True),
        ("from draws import SEED", True),
        ("layer = nn.Linear(3, 4)", True),
        ("from models.cases import model_of", True),  # it draws parameters
        ("import oracles", True),
        ("assert 1 + 1 == 2", False),
        ("from documented import ROOT", False),
    ],
)
def test_a_file_that_draws_is_known_by_its_text(tmp_path, text, expected):
    (tmp_path / "test_it.py").write_text(text)
    assert draws.at_random(tmp_path / "test_it.py") is expected
