"""Every command in a new interpreter, as a shell starts it: nothing that the tests have imported helps it.

Most tests of commands run in this process or in a fork of it, which is faster. This file tests the commands that no
other fast test starts. Each does its work on a stored run, except `bench` and `demo`, which take longer: here they
refuse a mistake, and a slow test does their work.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from child import regard

SCRIPT = str(Path(sys.executable).with_name("regard"))
TESTS = Path(__file__).parents[1]
STORED = TESTS / "stored_runs"
CPU = ("--device", "cpu")
# Commands that another fast test starts as `regard` or `python -m regard`, and that test's file.
ELSEWHERE = {
    "models": "test_plugins.py",
    "serve": "serving/test_server.py",
    "train": "promises/test_portable.py",
    "translate": "cli/commands/test_translate.py",
}
# The arguments of each of the others, its exit status, and the beginning of its output or message.
COMMANDS: dict[str, tuple[list[str | Path], int, str | tuple[str, ...]]] = {
    "align": ([STORED / "rnnsearch", "--source", "source", "--target", "target", *CPU], 0, ("0-", "1-", "2-")),
    "bench": (["attention", "--rounds", "2"], 2, "regard: --rounds: 2 given, expected at least 3"),
    "caption": ([STORED / "captioner", STORED / "0.png", "--longest", "5", *CPU], 0, "a "),
    "classify": ([STORED / "han", "This was a good film.", *CPU], 0, ("positive\n", "negative\n")),
    "compare": (["source", "output", "--source", "source", "--reference", "source"], 0, "A  source\nB  output\n"),
    "configs": ([], 0, "cmudict "),
    "export": ([STORED / "rnnsearch", "--to", "marian", "--out", "out"], 2, "regard: "),
    "import": (["someone/a-model", "--out", "out"], 2, "regard: someone/a-model: no such folder, and nothing is down"),
    "data": (["copy", "--out", "corpus", "--count", "3", "--valid", "1", "--test", "1"], 0, ""),
    "demo": (["--steps", "none"], 2, "regard: --steps: "),
    "eval": (["--hypothesis", "output", "--reference", "source"], 0, "output: 2 sentences\n"),
    "look": ([STORED / "rnnsearch", "the child sleeps .", "--out", "look.html", *CPU], 0, "look.html\n"),
    "pack": ([STORED / "han", "--out", "han.regard"], 0, ""),
    "runs": ([STORED], 0, "run "),
    "sample": ([STORED / "encoder-language-model", "--scores", "--longest", "5", *CPU], 0, ""),
    "score": ([STORED / "rnnsearch", "--source", "source", "--target", "target", *CPU], 0, "-"),
    "show": ([STORED / "han"], 0, "run "),
    "study": (["--list"], 0, "fixed-context "),
}
# Commands that open a run and train nothing. They must not import torch's compiler or its symbolic shapes, which take
# as long to import as torch.
OPENING = {"align", "caption", "classify", "look", "pack", "sample", "score"}
# The number of lines that some of them print.
LINES = {"align": 2, "caption": 1, "classify": 1, "sample": 1, "score": 2}
LONG = {
    "bench": (["lstmn", "--rounds", "3", "--threads", "1"], 0, "LSTMN, one step at length 50"),
    "demo": (["--steps", "1", "--out", "demo"], 0, "\n"),
}


def start(folder, name, arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error", "REGARD_CACHE": str(folder)}
    if name in OPENING:
        environment["PYTHONPROFILEIMPORTTIME"] = "1"  # Python lists its imports on standard error
    return subprocess.run(
        [SCRIPT, name, *arguments], cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=280
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_starts(name, tmp_path):
    (tmp_path / "source").write_text("the child sleeps\nthe dog eats\n")
    (tmp_path / "target").write_text("das Kind schläft\nder Hund frisst\n", encoding="utf-8")
    (tmp_path / "output").write_text("the child sleeps\nthe cat eats\n")
    arguments, status, begins = COMMANDS[name]
    shown = start(tmp_path, name, arguments)
    assert shown.returncode == status, shown.stderr
    assert (shown.stderr if status else shown.stdout).startswith(begins), shown
    assert "Traceback" not in shown.stderr
    if name in OPENING:
        imported = {line.rpartition("|")[2].strip() for line in shown.stderr.splitlines()}
        assert {module for module in ("torch", "torch._dynamo", "sympy") if module in imported} == {"torch"}
    if status:
        assert (shown.stdout, shown.stderr.count("\n")) == ("", 1)
    if name in LINES:
        assert shown.stdout.count("\n") == LINES[name], shown
    if name == "data":
        assert len((tmp_path / "corpus" / "train.source").read_text().splitlines()) == 3
    if name == "pack":
        assert regard("classify", tmp_path / "han.regard", "A good film.", *CPU).status == 0
    if name == "look":
        assert "</html>" in (tmp_path / "look.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_a_long_command_does_its_work(name, tmp_path):
    arguments, status, begins = LONG[name]
    shown = start(tmp_path, name, arguments)
    assert (shown.returncode, "Traceback" in shown.stderr) == (status, False), shown.stderr
    assert shown.stdout.startswith(begins), shown
    assert COMMANDS.keys() >= LONG.keys()


def test_every_command_is_started_here_or_elsewhere():
    files = (TESTS.parent / "src" / "regard" / "cli" / "commands").glob("[a-z]*.py")
    assert {path.stem.removesuffix("_") for path in files} == {*COMMANDS, *ELSEWHERE}
    for name, file in ELSEWHERE.items():
        assert re.search(rf'"-m", "regard", "{name}"', (TESTS / file).read_text(encoding="utf-8")), (name, file)
