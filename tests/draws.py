"""The seed, and which test files draw numbers, by their text: `-m draws`, which `make test-seeds` repeats.

A file draws if it, or a module of the tests that it imports, speaks of random numbers, of Hypothesis or of layers,
whose parameters begin at random. That is more than the tests whose result can hang on a draw.
"""

import ast
import os
import random
import re
from functools import cache
from pathlib import Path

SEED = int(os.environ.get("REGARD_SEED") or random.SystemRandom().randrange(2**31))
os.environ["REGARD_SEED"] = str(SEED)  # processes side by side collect the same tests
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
    """Return whether a file's tests draw, by its text and that of the modules of the tests that it imports."""
    text = path.read_text(encoding="utf-8")
    return bool(RANDOM.search(text)) or any(at_random(each) for each in imported(text))


def imported(text: str) -> list[Path]:
    """Return the files of the tests' own modules that a text imports, but for `conftest`, which all have."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update([node.module, *(f"{node.module}.{each.name}" for each in node.names)])
    files = (TESTS.joinpath(*name.split(".")).with_suffix(".py") for name in sorted(names - {"conftest"}))
    return [file for file in files if file.is_file()]
