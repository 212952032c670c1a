"""`regard pack` from the command line, and commands that take a pack instead of a run."""

import json
import shutil

import pytest
from cli.typing_in import Command
from stored_runs.write import HOME

COMMAND = Command("pack")
right, refused = COMMAND.right, COMMAND.refused


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    file = tmp_path_factory.mktemp("pack") / "model.regard"
    right(HOME / "transformer", "--out", file, "--licence", "CC0-1.0")
    return file


def test_what_is_printed(tmp_path):
    written = right(HOME / "transformer", "-o", tmp_path / "model.regard")
    assert f"{tmp_path / 'model.regard'} written" in written.stderr
    assert "no licence" in written.stderr
    assert written.stdout == ""


def test_mistakes(tmp_path, packed):
    assert refused(HOME / "transformer") == "--out: missing, expected a file to write, such as transformer.regard"
    assert "not a run folder" in refused(tmp_path, "--out", tmp_path / "x")
    assert "exists already" in refused(HOME / "transformer", "--out", packed)


def test_commands_take_it_where_they_take_a_run(packed, tmp_path):
    """Commands recognise a pack by its content, whatever its file name."""
    file = shutil.copy(packed, tmp_path / "a.txt")
    (tmp_path / "source").write_text("the dog sleeps\n")
    (tmp_path / "target").write_text("der Hund schläft\n")
    pair = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    assert "CC0-1.0" in Command("show").typed(file).stdout
    for words in (
        ["translate", file, "the dog sleeps"],
        ["translate", file, tmp_path / "source"],
        ["score", file, *pair],
        ["align", file, *pair],
        ["eval", file, "--source", tmp_path / "source", "--reference", tmp_path / "target"],
        ["compare", file, HOME / "transformer", "--source", tmp_path / "source", "--reference", tmp_path / "target"],
        ["look", file, "the dog", "--out", tmp_path / "look.html"],
        ["look", HOME / "transformer", "the dog", "--against", file, "--out", tmp_path / "against.html"],
    ):
        command, *rest = words
        ran, folder = Command(command).typed(*rest), [HOME / "transformer" if each == file else each for each in rest]
        assert ran.exit_code == 0, (words, ran.output)
        if command in ("translate", "score", "align"):
            assert ran.stdout == Command(command).typed(*folder).stdout
    assert json.loads(Command("show").typed(file, "--json").stdout)["licence"] == "CC0-1.0"
    assert "a pack cannot be resumed" in Command("train").refused("--resume", file)


def test_what_is_no_pack_is_named(tmp_path):
    (tmp_path / "notes").write_text("not a pack")
    assert Command("show").refused(tmp_path / "notes") == (
        f"{tmp_path / 'notes'}: a file that is not a pack of a run, or a damaged one; expected a run folder"
    )
