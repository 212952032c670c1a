"""`regard data` from the command line."""

import os

import pytest
from child import regard


def test_files_are_written_and_named(tmp_path):
    done = regard("data", "phrasebook", "--out", tmp_path, "--count", 30, "--valid", 2, "--test", 1, "--pair", "en-fr")
    assert done.status == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == f"{tmp_path / 'train.en'}: 30 lines"
    assert len(done.stderr.splitlines()) == 3 * 7 == len(list(tmp_path.iterdir()))
    assert len((tmp_path / "train.fr").read_text(encoding="utf-8").splitlines()) == 30
    assert (tmp_path / "train.align").read_text().startswith("0-")

    again = regard("data", "phrasebook", "--out", tmp_path, "--count", 3, "--pair", "en-fr")
    assert again.status == 2
    assert again.stderr == f"regard: {tmp_path / 'train.en'} already exists; --force overwrites it\n"
    forced = regard(
        "data", "phrasebook", "--out", tmp_path, "--count", 3, "--valid", 0, "--pair", "en-fr", "--force", "--test", 0
    )
    assert forced.status == 0
    assert len((tmp_path / "train.fr").read_text(encoding="utf-8").splitlines()) == 3


def test_options_of_a_corpus(tmp_path):
    wanted = ["--set", "language=de", "--set", "highest=99", "--count", 9, "--valid", 0, "--test", 0]
    done = regard("data", "numbers", "--out", tmp_path, *wanted)
    assert done.status == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.align", "train.source", "train.target"]
    assert all(int(line.replace(" ", "")) < 100 for line in (tmp_path / "train.target").read_text().splitlines())


def test_the_list_names_every_corpus():
    done = regard("data", "--list")
    assert done.status == 0
    for word in ("phrasebook", "numbers", "dates", "reverse", "sort", "copy", "longest=14", "direction=to-iso"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["dats", "--out", "x"], "there is no built-in corpus 'dats', did you mean 'dates'?"),
        ([], "which corpus? there are phrasebook, numbers"),
        (["copy"], "--out: missing, expected the folder to write the files to"),
        (["copy", "--out", "x", "--set", "longest"], "--set longest: expected option=value"),
        (["copy", "--out", "x", "--set", "longst=4"], "did you mean 'longest'?"),
        (["copy", "--out", "x", "--set", "seed=4"], "copy: there is no option 'seed'"),
        (["copy", "--out", "x", "--set", "longest=-4"], "longest: -4 given"),
        (["phrasebook", "--out", "x", "--pair", "de-en"], 'pair: "de-en" given, expected one of en-de, en-fr'),
        (["copy", "--out", "x", "--count", "-1"], "--count"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, wrong, said):
    done = regard("data", *wrong, before=lambda: os.chdir(tmp_path))
    assert done.status == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "x").write_text("")
    done = regard("data", "copy", "--out", tmp_path / "x")
    assert done.status == 2
    assert done.stderr.startswith("regard: ")
    assert "Traceback" not in done.stderr
