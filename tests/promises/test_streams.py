"""Closed or full standard output and error never end in a traceback, for every command and every way to break them."""

import os
import resource
from pathlib import Path

import pytest
from child import Ended, regard

from regard.cli import app

pytestmark = pytest.mark.unchecked  # typer uses other classes than it documents
ON_CPU = ("--device", "cpu")
# Every command, with arguments that make it print.
COMMANDS: dict[str, tuple[str, ...]] = {
    "align": ("run", "--source", "source", "--target", "source", *ON_CPU),
    "bench": ("--help",),
    "caption": ("captions", "photo.png", "--longest", "3", *ON_CPU),
    "classify": ("reviews", "source", *ON_CPU),
    "compare": ("source", "source", "--source", "source", "--reference", "source"),
    "configs": (),
    "data": ("--list",),
    "demo": ("--help",),
    "eval": ("--hypothesis", "source", "--reference", "source"),
    "export": ("--help",),
    "import": ("--help",),
    "look": ("run", "1 2", "--out", "look.html", *ON_CPU),
    "models": (),
    "pack": ("--help",),
    "runs": (".",),
    "sample": ("language", "--longest", "3", *ON_CPU),
    "score": ("run", "--source", "source", "--target", "source", *ON_CPU),
    "serve": ("--help",),
    "show": ("run",),
    "study": ("--list",),
    "train": ("--help",),
    "translate": ("run", "source", "--longest", "3", "--beam", "1", *ON_CPU),
}


@pytest.fixture(scope="module")
def furnished(furnish) -> Path:
    folder = furnish(run="transformer", language="language-model", captions="captioner", reviews="han")
    (folder / "source").write_text("1 2 3\n4 5\n")
    (folder / "data" / "captioned" / "pictures" / "0.png").rename(folder / "photo.png")
    return folder


@pytest.fixture(autouse=True)
def _there(furnished, monkeypatch):
    monkeypatch.chdir(furnished)


def close(*numbers: int):
    return lambda: [os.close(number) for number in numbers]


def full(number: int):
    return lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), number)


def broken(number: int):
    """Return a function that replaces a stream with a pipe without a reader, as in `| head -1`."""

    def put() -> None:
        read, write = os.pipe()
        os.dup2(write, number)
        os.close(write)
        os.close(read)

    return put


def test_every_command_is_here():
    assert {each.name for each in app.registered_commands} == COMMANDS.keys()


# Each command meets one way to break a stream; the slow form of the test has them all.
OUTPUTS = {
    "closed": (close(1), 2, "regard: standard output: Bad file descriptor"),
    "full": (full(1), 2, "regard: standard output: No space left on device"),
    "broken": (broken(1), 1, None),
    "all closed": (close(0, 1, 2), 2, None),
}
ERRORS = {"closed": close(2), "full": full(2), "broken": broken(2), "closed, and the input": close(0, 2)}


def cases(ways):
    """Return all pairs of command and way; those beyond each command's own way are marked as slow."""
    return [
        pytest.param(command, way, marks=[] if i % len(ways) == j or command == "translate" else pytest.mark.slow)
        for i, command in enumerate(COMMANDS)
        for j, way in enumerate(ways)
    ]


@pytest.mark.parametrize(("command", "way"), cases(OUTPUTS))
def test_a_standard_output_that_cannot_be_written(command, way):
    before, status, said = OUTPUTS[way]
    shown = regard(command, *COMMANDS[command], before=before)
    assert shown.status == status
    assert "Traceback" not in shown.stderr
    assert "Broken pipe" not in shown.stderr
    assert said is None or shown.stderr.splitlines()[-1] == said


@pytest.mark.parametrize(("command", "way"), cases(ERRORS))
def test_a_standard_error_that_cannot_be_written(command, way):
    """Messages are lost; results and status are not."""
    usual = regard(command, *COMMANDS[command])
    assert usual.status == 0
    assert regard(command, *COMMANDS[command], before=ERRORS[way])[:2] == usual[:2]


@pytest.mark.parametrize("before", [close(1), close(1, 2), full(1), close(0, 1, 2)])
def test_a_mistake_is_still_a_mistake(before):
    shown = regard("translate", "nowhere", before=before)
    assert shown.status == 2
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("before", [close(1), close(2), close(0, 1, 2), full(1), full(2)])
def test_results_in_a_file_need_no_standard_output(before, tmp_path):
    """The output file must not take the closed descriptor: printed text would then go into it."""
    out = tmp_path / "out"
    shown = regard("translate", "run", "source", "--out", out, "--longest", 3, *ON_CPU, before=before)
    assert shown.status == 0
    assert out.read_text().count("\n") == 2


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "before", [close(0, 1, 2), pytest.param(full(2), marks=SLOW), pytest.param(broken(2), marks=SLOW)]
)
def test_training_needs_neither(tmp_path, before):
    given = ["training.steps=2", "model.size=8", "model.layers=1", "model.heads=2", "training.device=cpu"]
    given += ["training.validate_rows=2", f"data.cache={tmp_path}/cache"]
    sets = [word for each in given for word in ("--set", each)]
    files, out = Path("data/pairs"), tmp_path / "run"
    command = ("train", "--source", files / "source.txt", "--target", files / "target.txt", "--out", out, *sets)
    assert regard(*command, before=before) == Ended(0, "", "")
    assert (out / "report.html").exists()


def no_room() -> None:
    """Limit files to four kilobytes, as on an almost full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


WRITERS = {
    "translate": ("run", "many", "--beam", "1", "--longest", "3", *ON_CPU, "--out"),
    "look": ("run", "1 2", *ON_CPU, "--out"),
    "eval": ("--hypothesis", "many", "--reference", "many", "--source", "many", "--metrics", "bleu", "--plot"),
    "data": ("phrasebook", "--count", "500", "--out"),
    "train": ("--source", "many", "--target", "many", "--anyway", "--set", "training.device=cpu", "--out"),
}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("translate", "out.txt"),
        ("look", "a.html"),
        ("look", "a.png"),
        ("look", "pages"),
        ("eval", "a.svg"),
        ("data", "corpus"),
        ("train", "run"),
    ],
)
def test_no_room_names_the_path(tmp_path, command, name):
    """One sentence names the file, folder or cache that cannot be written."""
    Path("many").write_text("".join(f"{i} 2 3\n" for i in range(900)))
    out = tmp_path / name
    cache = ("--set", f"data.cache={tmp_path / 'cache'}") if command == "train" else ()
    shown = regard(command, *WRITERS[command], out, *cache, before=no_room)
    assert shown.status == 2, shown
    last = shown.stderr.splitlines()[-1]
    assert str(tmp_path) in last
    assert "File too large" in last
    assert "Traceback" not in shown.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_full_device_is_named():
    shown = regard("translate", "run", "source", "--longest", 3, *ON_CPU, "--out", "/dev/full")
    assert shown == (2, "", "regard: /dev/full: No space left on device\n")


def test_a_closed_standard_input_is_one_sentence():
    shown = regard("translate", "run", *ON_CPU, before=close(0))
    assert shown == (2, "", "regard: standard input: closed, expected lines of text or a file's name\n")
