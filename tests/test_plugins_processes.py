"""Plugins in other processes: those of a study, those that torchrun starts, and a Python that has not imported them."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from child import command, fork_ranks, forked
from cli.typing_in import Command
from plugin_rows import forget_plugins
from tiny import free_port, table

from regard import plugins
from regard.errors import CommandError
from regard.report import train
from regard.run import load

pytestmark = pytest.mark.unchecked  # typer's own classes differ from the documented ones
STUDY = """
import regard
from regard_studies import Study
from regard_studies.page import Page, Table, signed_training
from regard_studies.systems import train_all

TABLE = {
    "data": {"builtin": "reverse", "count": 50},
    "tokenizer": {"kind": "word"},
    "model": {"kind": "own-translator"},
    "training": {"steps": 1, "batch_tokens": 128, "validate_every": 1, "validate_rows": 0},
}


def measure(setting):
    with signed_training(setting) as clock:
        systems = train_all("own-claim", {"own": TABLE}, setting)
    rows = [[system.name, system.seed, system.parameters] for system in systems]
    table = Table("systems", ["system", "seed", "parameters"], rows)
    none = {"measured": ["Steps."], "plots": [], "verdicts": [], "caveats": []}
    words = {"name": "own-claim", "title": "A claim", "claim": "a claim of one's own", "source": "nobody"}
    return Page(tables=[table], signature=clock.signature(), **none, **words)


regard.register("own-claim", study=Study("a claim of one's own", measure, trained=True))
"""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Provide a folder with two plugins; forget their registrations afterwards."""
    shutil.copy(Path(__file__).with_name("own_kinds.py"), tmp_path / "mine.py")
    (tmp_path / "claim.py").write_text(STUDY)
    with forget_plugins(tmp_path, monkeypatch):
        yield tmp_path


def whole_table(desk: Path) -> dict:
    """Return a configuration of the plugin's kind."""
    return table(desk, model={"kind": "own-translator", "attends": True}, training__steps=2, training__validate_every=2)


def train_with(plugin: str, desk: Path) -> None:
    """Train a run of the plugin's kind in a child; this process does not import the plugin."""

    def work() -> None:
        plugins.load(plugin)
        train(whole_table(desk), "run")

    ended = forked(work)
    assert ended.status == 0, ended.stderr


def open_without(folder: Path, module: str) -> list[str]:
    """Return the output of a Python that loads the run, and loads it again after importing the plugin's module."""

    def work() -> None:
        with pytest.raises(CommandError) as caught:
            load("run")
        print(caught.value)
        sys.path.insert(0, str(folder))
        importlib.import_module(module)
        print(load("run").settings.kind)

    assert module not in sys.modules
    ended = forked(work)
    assert ended.status == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_study_of_ones_own_trains_systems_of_ones_own_in_processes_of_their_own(desk):
    given = ("own-claim", "--quick", "--device", "cpu", "--plugin", "mine.py", "--plugin", "claim.py")
    shown = Command("study").typed(*given, "--seeds", "1", "--jobs", 2)  # one system and so one process: 5 s each
    assert shown.exit_code == 0, shown.output
    assert "own-claim" in (desk / "studies" / "own-claim" / "index.html").read_text()
    run = load(desk / "studies" / "own-claim" / "runs" / "quick-own-1")
    assert (run.settings.kind, run.settings.plugins, run.step) == ("own-translator", ("mine.py",), 1)
    before = shown.stdout
    again = Command("study").typed(*given, "--seeds", "1")
    assert (again.exit_code, again.stderr.count("found in")) == (0, 1)
    assert again.stdout.splitlines()[:4] == before.splitlines()[:4]
    listed = Command("study").typed("--list", "--plugin", "claim.py").stdout.splitlines()
    assert listed[-1].split() == ["own-claim", "a", "claim", "of", "one's", "own"]


def test_two_processes_train_a_kind_of_ones_own(desk):
    (desk / "c.toml").write_text(tomli_w.dumps(whole_table(desk)))
    ranks = fork_ranks(command("train", "c.toml", "--out", "run", "--plugin", "mine.py"))
    assert [rank.status for rank in ranks] == [0, 0], ranks
    plugins.load("mine.py")
    run = load("run")
    assert (run.step, run.settings.plugins) == (2, ("mine.py",))


@pytest.mark.slow
def test_torchrun_takes_a_plugin(desk):
    (desk / "c.toml").write_text(tomli_w.dumps(whole_table(desk)))
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    command += ["-m", "regard", "train", "c.toml", "--out", "run", "--plugin", "mine.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    shown = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, timeout=280)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr.count("finished after 2 steps") == 1


def test_python_that_has_not_imported_a_plugin_says_which_it_needs(desk):
    train_with("mine.py", desk)
    needed = "run: it needs the plugin mine.py; give --plugin mine.py, or import it in Python"
    assert open_without(desk, "mine") == [needed, "own-translator"]


def test_a_run_of_an_installed_plugin_is_opened_when_its_module_is_imported(desk, monkeypatch):
    install(desk, monkeypatch)
    train_with("own", desk)
    needed = "run: it needs the plugin own; give --plugin own, or import it in Python"
    assert open_without(desk / "site", "installed") == [needed, "own-translator"]


def test_a_run_of_a_module_is_opened_by_the_short_name_of_its_entry_point(desk, monkeypatch):
    install(desk, monkeypatch)
    plugins.load("own")
    plugins.check_loaded(["installed"], "run")
    with pytest.raises(CommandError, match="run: it needs the plugin another; give --plugin another"):
        plugins.check_loaded(["installed", "another"], "run")


def install(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the plugin as a package with an entry point: `own` is the module `installed`."""
    info = desk / "site" / "installed-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[regard.plugins]\nown = installed\n")
    (desk / "mine.py").rename(desk / "site" / "installed.py")
    monkeypatch.syspath_prepend(desk / "site")
