"""Every command in a new interpreter, as a shell starts it: nothing that the tests have imported helps it.

Most tests of commands run in this process or in one forked from it, which is faster. The commands here are those that
no other fast test starts. Importing torch takes seconds: of the commands that need it, `look` does its work, and the
others refuse a mistake before they import it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = str(Path(sys.executable).with_name("regard"))
TESTS = Path(__file__).parents[1]
STORED = TESTS / "stored_runs"
# Commands that another fast test starts as `regard` or `python -m regard`, and where.
ELSEWHERE = {
    "models": "test_plugins.py",
    "serve": "serving/test_server.py",
    "train": "promises/test_portable.py",
    "translate": "cli/commands/test_translate.py",
}
# What each of the others is asked, its exit status, and how its output or its message begins.
COMMANDS: dict[str, tuple[list[str | Path], int, str]] = {
    "align": (["run"], 2, "regard: --source: missing, expected a text file"),
    "bench": (["attention", "--rounds", "2"], 2, "regard: --rounds: 2 given, expected at least 3"),
    "caption": (["run", "--beam", "0"], 2, "regard: --beam: 0 given, expected at least 1"),
    "classify": ([], 2, "regard: missing argument"),
    "compare": (["source", "output", "--source", "source", "--reference", "source"], 0, "A  source\nB  output\n"),
    "configs": ([], 0, "cmudict "),
    "data": (["copy", "--out", "corpus", "--count", "3", "--valid", "1", "--test", "1"], 0, ""),
    "demo": (["--steps", "none"], 2, "regard: --steps: "),
    "eval": (["--hypothesis", "output", "--reference", "source"], 0, "output: 2 sentences\n"),
    "look": ([STORED / "rnnsearch", "the child", "--out", "look.html", "--device", "cpu"], 0, "look.html\n"),
    "runs": ([STORED], 0, "run "),
    "sample": (["run", "--count", "0"], 2, "regard: --count: 0 given, expected at least 1"),
    "score": (["run", "--source", "source"], 2, "regard: --target: missing"),
    "show": ([STORED / "han"], 0, "run "),
    "study": (["--list"], 0, "fixed-context "),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_starts(name, tmp_path):
    (tmp_path / "source").write_text("the child sleeps\nthe dog eats\n")
    (tmp_path / "output").write_text("the child sleeps\nthe cat eats\n")
    arguments, status, begins = COMMANDS[name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    shown = subprocess.run(
        [SCRIPT, name, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert shown.returncode == status, shown.stderr
    assert (shown.stderr if status else shown.stdout).startswith(begins), shown
    assert "Traceback" not in shown.stderr
    if status:
        assert (shown.stdout, shown.stderr.count("\n")) == ("", 1)
    if name == "data":
        assert len((tmp_path / "corpus" / "train.source").read_text().splitlines()) == 3
    if name == "look":
        assert "</html>" in (tmp_path / "look.html").read_text(encoding="utf-8")


def test_every_command_is_started_here_or_elsewhere():
    files = (TESTS.parent / "src" / "regard" / "cli" / "commands").glob("[a-z]*.py")
    assert {path.stem for path in files} == {*COMMANDS, *ELSEWHERE}
    for name, file in ELSEWHERE.items():
        assert re.search(rf'"-m", "regard", "{name}"', (TESTS / file).read_text(encoding="utf-8")), (name, file)
