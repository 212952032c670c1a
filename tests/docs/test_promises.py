"""The page of promises names every test of a promise, and no other test."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_promise_is_there():
    page = (ROOT / "docs" / "guide" / "promises.md").read_text()
    promises = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "promises").glob("test_*.py")}
    assert set(re.findall(r"`(tests/promises/[^`]+)`", page)) == promises
