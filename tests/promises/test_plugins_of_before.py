"""A plugin from before packages had doors still runs: the pages about plugins as they were then."""

import re
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import pytest
from child import regard

PAGES = Path(__file__).with_name("plugins_of_before")
FILE = re.compile(r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
SETTINGS = ["task=noisy", "data.builtin=mirrors", "data.count=200", "model.kind=near", "model.size=16"]
SETTINGS += ["training.metric=length", "training.steps=2", "training.device=cpu", "data.cache=cache"]


@pytest.fixture
def desk(tmp_path):
    """Return a function that runs a command in an empty folder."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "always", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=240)

    return tmp_path, run


def test_kinds_tasks_corpora_and_metrics(desk, monkeypatch):
    folder, run = desk
    words = []
    for name, code in FILE.findall((PAGES / "plugins.md").read_text(encoding="utf-8")):
        (folder / name).write_text(code, encoding="utf-8")
        words += ["--plugin", name]
    assert len(words) == 6
    settings = [each for setting in SETTINGS for each in ("--set", setting)]
    run("-m", "regard", "train", "--out", "run", *settings, *words)
    monkeypatch.chdir(folder)
    always = partial(warnings.simplefilter, "always")
    translated = regard("translate", "run", "--alignment", *words, stdin=b"a b\n", before=always)
    assert (translated.status, translated.stdout.count("\t")) == (0, 1), translated.stderr
    assert regard("data", "mirrors", "--out", "data", *words, before=always).status == 0
    assert len((folder / "data" / "train.source").read_text().splitlines()) > 100


@pytest.mark.parametrize(("page", "warnings"), [("tasks", 0), ("studies", 1)])
def test_code_in_python_prints_what_the_page_says(desk, page, warnings):
    folder, run = desk
    blocks = CODE.findall((PAGES / f"{page}.md").read_text(encoding="utf-8"))
    assert blocks
    (folder / "code.py").write_text("\n".join(code for code, _ in blocks), encoding="utf-8")
    found = run("code.py")
    assert found.stdout == "".join(said for _, said in blocks)
    assert found.stderr.count("DeprecationWarning: regard.") == warnings
