"""The seed, and the test files that draw numbers, found by their text: `-m draws`, which `make test-seeds` repeats.

A file draws if it, or a test module that it imports, mentions random numbers, Hypothesis or layers, whose parameters
begin at random. That includes more tests than those whose result can depend on a draw.
"""

import ast
import os
import random
import re
from functools import cache
from pathlib import Path

SEED = int(os.environ.get("REGARD_SEED") or random.SystemRandom().randrange(2**31))
os.environ["REGARD_SEED"] = str(SEED)  # parallel processes collect the same tests
TESTS = Path(__file__).parent
RANDOM = re.compile(
    r"""
    \bhypothesis\b | \bSEED\b | (?<!def\ )\brand\w* | \.(?:normal|uniform|bernoulli|exponential|random)_\(
    | \bnn\.(?:[A-Z]\w*|init)\b
    | \b(?:Heads|Block|Blocks|Encoder|Decoder|Additive|General|Location|Learned|Predictive)\(
""",
    re.VERBOSE,
)


@cache
def at_random(path: Path) -> bool:
    """Return whether a file's tests draw, by its text and that of the test modules that it imports."""
    text = path.read_text(encoding="utf-8")
    return bool(RANDOM.search(text)) or any(at_random(each) for each in imported(text))


def imported(text: str) -> list[Path]:
    """Return the files of the test modules that a text imports, except `conftest`, which every test has."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update([node.module, *(f"{node.module}.{each.name}" for each in node.names)])
    files = (TESTS.joinpath(*name.split(".")).with_suffix(".py") for name in sorted(names - {"conftest"}))
    return [file for file in files if file.is_file()]
