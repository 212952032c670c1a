"""The runs that a command line names."""

import json
import subprocess
import sys

import pytest
from cli.typing_in import Command

from regard.cli.runs import open_beside, open_run, split_runs_and_inputs
from regard.data import unknown_words
from regard.errors import CheckpointError, CommandError
from regard.io import GivenText
from regard.run import load


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
    (tmp_path / "in.txt").write_text("x\n")


@pytest.mark.parametrize(
    ("paths", "runs", "inputs"),
    [
        (["one"], ["one"], ["-"]),
        (["one", "two"], ["one", "two"], ["-"]),
        (["one", "-"], ["one"], ["-"]),
        (["one", "two", "in.txt"], ["one", "two"], ["in.txt"]),
        (["one", "in.txt", "in.txt", "-"], ["one"], ["in.txt", "in.txt", "-"]),
        (["one", "A dog ."], ["one"], ["A dog ."]),
        (["one", "two", "A dog .", "A cat .\n", "", "Dog"], ["one", "two"], ["A dog .\nA cat .\n\nDog\n"]),
        (["one", ""], ["one"], [""]),
        (["one", "", ""], ["one"], ["\n\n"]),
        (["one", "", "two"], ["one"], None),
        (["one", " "], ["one"], [" "]),
    ],
)
def test_runs_lead_and_the_rest_are_texts_or_files(desk, paths, runs, inputs):
    if inputs is None:
        with pytest.raises(CommandError, match="^two: a folder behind ; give run folders first"):
            split_runs_and_inputs(paths)
    else:
        assert split_runs_and_inputs(paths) == (runs, inputs)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["in.txt"], "in.txt: a file, expected a run folder first"),
        (["-"], "-: a file, expected a run folder first"),
        (["none"], "none: no such folder, expected a run folder first"),
        (["in.txt", "one"], "in.txt: a file, expected a run folder first"),
        (["-", "in.txt"], "-: a file, expected a run folder first"),
        (["one", "none"], "none: no such file; if it is a text, add --text$"),
        (["one", "none", "nine"], "none: no such file; if these are texts, add --text$"),
        (["one", "in.txt", "two"], "two: a folder behind in.txt; give run folders first, and then texts or files$"),
        (
            ["one", "A dog .", "in.txt"],
            "A dog .: a text, beside the file in.txt; give run folders first, and then texts",
        ),
        (["one", "in.txt", ""], ": a text, beside the file in.txt"),
        (["one", "nine", "in.txt"], "nine: no such file, beside the file in.txt; give run folders first"),
        (["one", "-", "-"], "-: standard input given twice"),
        (["A dog .", "one"], "A dog .: no such folder, expected a run folder first"),
        (["", "one"], ": no such folder, expected a run folder first"),
    ],
)
def test_what_is_no_run(desk, paths, message):
    with pytest.raises(CommandError, match=f"^{message}"):
        split_runs_and_inputs(paths)


def test_a_word_is_a_text_where_a_person_says_so(desk, tmp_path):
    (tmp_path / "two" / "config.toml").write_text("")
    (tmp_path / "dog").mkdir()
    assert split_runs_and_inputs(["one", "none"], as_text=True) == (["one"], ["none\n"])
    assert split_runs_and_inputs(["one", "in.txt", "none", "-"], as_text=True) == (["one"], ["in.txt\nnone\n-\n"])
    assert split_runs_and_inputs(["one", "two", "in.txt"], as_text=True) == (["one", "two"], ["in.txt\n"])
    assert split_runs_and_inputs(["one", "dog", "two"], as_text=True) == (["one"], ["dog\ntwo\n"])
    assert isinstance(split_runs_and_inputs(["one", "in.txt"], as_text=True)[1][0], GivenText)
    for runs in (["one"], ["one", "two"]):
        with pytest.raises(CommandError, match="^--text: missing a text"):
            split_runs_and_inputs(runs, as_text=True)


def test_a_run_is_opened_on_the_device_that_is_named(furnish):
    home = furnish(run="transformer", back="luong")
    run = open_run(home / "run", checkpoint="last", device="cpu")
    other = open_beside(run, home / "back", checkpoint="best")
    assert other is not None
    assert [each.device.type for each in (run, other)] == ["cpu", "cpu"]
    assert open_beside(run, None, checkpoint="best") is None
    with pytest.raises(CommandError, match="^--device: 'abacus' given"):
        open_run(home / "run", checkpoint="best", device="abacus")
    with pytest.raises(CheckpointError, match="step-000999"):
        open_run(home / "run", checkpoint="step-000999", device="cpu")


@pytest.fixture(scope="module")
def reading(furnish):
    home = furnish(run="transformer", han="han")
    (home / "in.txt").write_text("1 zorp 2\n3 flim zorp\n")
    (home / "out.txt").write_text("2 1\n3 4\n")
    (home / "documents.txt").write_text("The was zorp .\n")
    return home


@pytest.mark.unchecked  # typer uses other classes than it documents
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("translate run in.txt", "zorp and flim were never seen in training"),
        ("score run --source in.txt --target out.txt", "zorp and flim were never seen in training"),
        ("align run --source in.txt --target out.txt", "zorp and flim were never seen in training"),
        ("look run in.txt --out look.html", "zorp and flim were never seen in training"),
        ("classify han documents.txt", "zorp was never seen in training"),
    ],
)
def test_words_that_were_never_seen_are_named_once(reading, monkeypatch, command, message):
    monkeypatch.chdir(reading)
    name, *arguments = command.split()
    shown = Command(name).right(*arguments)
    assert shown.stderr.count("never seen in training") == 1
    assert f"regard: {message}\n" in shown.stderr
    assert "never seen" not in shown.stdout


@pytest.mark.unchecked
def test_known_words_are_not_spoken_of(reading, monkeypatch):
    monkeypatch.chdir(reading)
    assert Command("translate").typed("run", stdin="1 2 3\n").stderr == ""


def test_a_program_is_told_of_them_if_it_asks(reading):
    messages = []
    run = load(reading / "run", warn=messages.append)
    run.translate(["1 zorp", "2 3"])
    run.score(["zorp 4"], ["5"])
    assert messages == ["zorp was never seen in training"]
    run.align("flim 1", "2")
    assert messages[1:] == ["flim was never seen in training"]
    assert run.unknown.message() == "zorp and flim were never seen in training"
    assert load(reading / "run").translate(["1 zorp"])  # a program that gives no `warn` is told nothing


def test_the_words_of_the_training_are_kept_with_a_run(reading):
    words = unknown_words.read_words(reading / "han")
    assert words is not None
    assert {"the", "was"} <= words
    (reading / "han" / "words.txt").write_text("damaged")
    assert unknown_words.read_words(reading / "han") is None
    assert load(reading / "han").classify(["The soup was good ."])[0] is not None


NO_RUN = [
    ["look", "none", "a text"],
    ["look", "none", "--graph"],
    ["classify", "none"],
    ["align", "none", "--source", "in.txt"],
    ["score", "none", "--target", "a text"],
    ["caption", "none", "a.png"],
    ["sample", "none"],
    ["serve", "none"],
    ["serve", "de=none"],
    ["train", "--resume", "none"],
    ["train", "--from", "none", "--source", "in.txt", "--target", "in.txt"],
    ["show", "none"],
    ["eval", "none", "--source", "in.txt", "--reference", "in.txt"],
]
REFUSE = """
import json, os, sys
from regard.cli.program import main

for arguments in json.loads(sys.argv[1]):
    if os.fork() == 0:
        sys.argv = ["regard", *arguments]
        try:
            main()
        except SystemExit as end:
            print(arguments[0], end.code, "torch" in sys.modules, flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_folder_that_is_no_run_is_refused_before_torch_is_imported(desk):
    shown = subprocess.run(
        [sys.executable, "-c", REFUSE, json.dumps(NO_RUN)], capture_output=True, text=True, timeout=120
    )
    assert shown.stdout.splitlines() == [f"{each[0]} 2 False" for each in NO_RUN]
    message = "regard: none: no such folder, expected a run folder; regard runs lists run folders"
    assert shown.stderr.splitlines() == [message] * len(NO_RUN)
