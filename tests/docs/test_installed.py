"""Every command in a page's code block runs from the installed wheel, in an empty folder, with little data.

`make test` runs the commands of the first pages from the source, and `make test-all` runs all of them from a wheel.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from child import regard
from documented import ROOT, SHELL, spans, texts
from furnished import shared_root, trained
from stand_ins import prepare

FIRST = re.compile(r"README\.md: |docs/index\.md: |docs/guide/quickstart\.md: ")
NOT_HERE = {  # at most ten, each with its reason
    "torchrun ": "several processes: tests/promises and tests/training start them",
    "regard bench ": "needs a GPU, or minutes of measuring: tests/bench runs them small",
    "regard study luong-table ": "needs a GPU and corpora of one's own: tests/studies runs it small",
    "regard train --images photographs --captions captions.tsv --out runs/resnet50": "needs weights of a backbone",
}
SERVER = """
import json, os, signal, sys
import regard
from child import regard as run
print(json.dumps(regard.__file__), flush=True)
for line in sys.stdin:
    words, folder, given = json.loads(line)
    before = lambda: (os.chdir(folder), signal.alarm(800))
    print(json.dumps(run(*words, stdin=given.encode(), before=before)), flush=True)
"""


def lines() -> dict[str, str]:
    """Return each command of the code blocks once, under the first page that shows it."""
    found: dict[str, str] = {}
    for page, text in texts().items():
        for line in spans(text)[0]:
            if line.strip().startswith("regard serve "):  # runs until it is stopped: test_serve_page.py starts it
                continue
            if re.match(r"(?:torchrun .*|(?:echo|cat) [^|]* \| )?regard [a-z]|torchrun ", line.strip()):
                found.setdefault(" ".join(shlex.split(line, comments=True)), f"{page}: {line.strip()}")
    return {name: line for line, name in found.items()}


LINES = lines()
HERE = [name for name in LINES if not name.partition(": ")[2].startswith(tuple(NOT_HERE))]


@pytest.fixture(scope="session")
def runs(furnished, tmp_path_factory):
    """Train a tiny run of every kind that the pages' commands need."""
    root = shared_root(tmp_path_factory)
    others = {name: trained(root, name) for name in ("captioner", "convnet", "han", "encoder", "language-model")}
    return {"transformer": furnished / "runs" / "en-de", **others}


def words_of(name: str) -> tuple[list[str], str]:
    """Return the words between `regard` and the first shell operator, and the text for standard input."""
    words = shlex.split(name.partition(": ")[2], comments=True)
    given = "The dog sleeps.\n"
    words = words[words.index("regard") + 1 :]
    ends = next((i for i, word in enumerate(words) if word in SHELL), len(words))
    return words[:ends], given


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """Start a process that has regard from the wheel and forks for each command: `run(words, folder, stdin)`."""
    home = tmp_path_factory.mktemp("wheel")
    pins = {"PIP_CONSTRAINT": "constraints.txt", "PIP_BUILD_CONSTRAINT": "constraints.txt"}
    build = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "-w", home, "."]
    subprocess.run(build, check=True, cwd=ROOT, env={**os.environ, **pins})
    (wheel,) = home.glob("regard-*.whl")
    zipfile.ZipFile(wheel).extractall(home / "site")
    path = os.pathsep.join([str(home / "site"), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "REGARD_CACHE": str(home / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=home, env=environment
    ) as server:
        assert Path(json.loads(server.stdout.readline())).is_relative_to(home / "site")

        def run(words, folder, given):
            server.stdin.write(json.dumps([words, str(folder), given]) + "\n")
            server.stdin.flush()
            return json.loads(server.stdout.readline())

        yield run
        server.stdin.close()


def check(name, folder, runs, run):
    words, given = words_of(name)
    before = prepare(words, folder, runs)
    status, out, err = run(before, folder, given)
    assert status == 0, f"regard {shlex.join(before)}\n{out[-500:]}\n{err[-2000:]}"
    if "--out" in words and words[0] in ("train", "look", "data"):
        assert (folder / words[words.index("--out") + 1]).exists()


@pytest.mark.parametrize("name", [name for name in HERE if FIRST.match(name) and "regard demo" not in name])
def test_a_command_of_the_first_pages_runs(name, tmp_path, runs, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / ".cache"))

    def run(words, folder, given):
        return regard(*words, stdin=given.encode(), before=lambda: os.chdir(folder))

    check(name, tmp_path, runs, run)


@pytest.mark.slow
@pytest.mark.timeout(900)  # the demo reads all of its corpus
@pytest.mark.parametrize("name", HERE)
def test_a_command_runs_from_the_wheel_in_an_empty_folder(name, tmp_path, runs, installed):
    check(name, tmp_path, runs, installed)
    shutil.rmtree(tmp_path)  # one run per command would fill a disk


def test_few_lines_are_not_run_here():
    """Each line that does not run here has a reason, and each reason has a line."""
    assert len(LINES) > 150
    absent = [name for name in LINES if name not in HERE]
    assert len(absent) <= 10
    for begin in NOT_HERE:
        assert any(name.partition(": ")[2].startswith(begin) for name in absent)


@pytest.mark.slow
def test_a_shipped_configuration_is_found_by_its_name(installed, tmp_path):
    status, out, _ = installed(["configs"], tmp_path, "")
    assert status == 0
    listed = {line.split()[0] for line in out.splitlines() if line}
    assert {path.stem for path in (ROOT / "configs").glob("*.toml")} <= listed
    for name in ("multi30k", "configs/multi30k.toml"):
        assert installed(["train", name, "--check"], tmp_path, "")[:2] == [0, "the configuration is valid\n"]
    assert list(tmp_path.iterdir()) == []
