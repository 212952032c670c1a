"""A run that an earlier version wrote loads, answers as it did then, and resumes.

`tests/stored_runs/` holds a tiny run of each kind and task, written by the code of 8ff4b59, with that code's answers:
tokens, labels and links must be equal everywhere, and numbers to 1e-5. The numbers of a resumed training must be equal
bit by bit if torch and the processor are the same.
"""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from stored_runs.write import HOME, RUNS, answer, resume, signature

from regard.config import read
from regard.models import KINDS

HEX = re.compile(r"-?0x[01]\.[0-9a-f]+p[+-][0-9]+")
pytestmark = pytest.mark.unchecked  # the command line is used, and typer uses other classes than it documents


@pytest.fixture(scope="module", autouse=True)
def one_thread(tmp_path_factory):
    """Sum on one thread, in the original order, and encode corpora that several runs share once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)


def expected(name: str) -> dict[str, Any]:
    return json.loads((HOME / name / "expected.json").read_text(encoding="utf-8"))


def numbers(value: Any) -> list[float]:
    """Return every number of an answer, in its order."""
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers(each)]
    if isinstance(value, list):
        return [number for each in value for number in numbers(each)]
    return [float.fromhex(value)] if isinstance(value, str) and HEX.fullmatch(value) else []


def words(value: Any) -> Any:
    """Return an answer without its numbers."""
    if isinstance(value, dict):
        return {key: words(each) for key, each in value.items()}
    if isinstance(value, list):
        return [words(each) for each in value]
    return "a number" if isinstance(value, str) and HEX.fullmatch(value) else value


def same(found: Any, stored: Any, exactly: bool) -> None:
    """Check that words are equal, and numbers are equal bit by bit or nearly."""
    assert words(found) == words(stored)
    if exactly:
        assert found == stored
    pairs = list(zip(numbers(found), numbers(stored), strict=True))
    assert pairs
    assert all(math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-5) for one, other in pairs)


def test_there_is_one_of_every_kind_and_task():
    assert {(kind, task) for kind, task, _ in RUNS.values()} == {
        (kind.name, task) for kind in KINDS.values() for task in kind.tasks
    }
    assert {path.name for path in HOME.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_it_answers_as_it_did(name):
    stored = expected(name)
    same(answer(HOME / name), stored["answers"], exactly=False)


@pytest.mark.parametrize("name", RUNS)
def test_it_resumes(name, tmp_path):
    stored = expected(name)
    run = Path(shutil.copytree(HOME / name, tmp_path / name, ignore=shutil.ignore_patterns("expected.json")))
    same(resume(run), stored["resumed"], stored["signature"] == signature())


def test_the_task_stands_in_the_model_of_those_with_several():
    jobs = {name: read(HOME / name / "config.toml")["model"].get("job") for name in RUNS}
    assert {name: job for name, job in jobs.items() if job} == {
        name: task for name, (kind, task, _) in RUNS.items() if kind in ("encoder", "lstmn")
    }


def test_a_changed_number_would_be_found():
    stored = expected("luong")["answers"]
    changed = json.loads(json.dumps(stored))
    changed["scores"][0][0] = (float.fromhex(changed["scores"][0][0]) * (1 + 2**-52)).hex()
    same(changed, stored, exactly=False)
    with pytest.raises(AssertionError):
        same(changed, stored, exactly=True)
    changed["scores"][0][0] = (float.fromhex(changed["scores"][0][0]) + 1e-3).hex()
    with pytest.raises(AssertionError):
        same(changed, stored, exactly=False)
