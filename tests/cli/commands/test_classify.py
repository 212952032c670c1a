"""`regard classify` from the command line, with mistakes."""

import gzip
import json
import shlex
from pathlib import Path

import pytest
from cli.typing_in import Command
from tiny import question_table

from regard import load
from regard.tasks import start

COMMAND = Command("classify")
typed, said, refused = COMMAND.typed, COMMAND.said, COMMAND.refused
UNSEEN = "regard: soup, bland, waiter, rude, Monday, <br and 1 more were never seen in training"
TEXTS = ["The soup was not bland .", "", "I would never call the waiter rude . It was Monday .", " <br /> ", "Bad !"]


@pytest.fixture(scope="module")
def desk(furnish) -> Path:
    folder = furnish(run="han", translator="transformer")
    (folder / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (folder / "in.gz").write_bytes(gzip.compress((folder / "in.txt").read_bytes()))
    (folder / "odd.txt").write_bytes(b"Good .\nsoup \xe4 .\nBad !\n")
    return folder


def test_a_label_a_line_in_order(at_desk, monkeypatch):
    found = load("run").classify(TEXTS)
    expected = [each.label if each else "" for each in found]
    assert [bool(each) for each in expected] == [True, False, True, False, True]
    assert said("run", "in.txt") == said("run", "in.gz") == said("run", stdin="\n".join(TEXTS)) == expected
    monkeypatch.setattr("regard.io.inputs.DOCUMENTS", 2)
    assert said("run", "in.txt") == expected
    assert said("run", stdin="") == []


def test_labels_of_a_table_are_ignored(at_desk):
    expected = [each.label if each else "" for each in load("run").classify(TEXTS)]
    (at_desk / "labelled.tsv").write_text("".join(f"positive\t{text}\n" for text in TEXTS))
    shown = typed("run", "labelled.tsv")
    assert shown.stdout.split("\n")[:-1] == expected
    note = "regard: labelled.tsv: reading the documents in column 2; labels are ignored"
    assert shown.stderr.splitlines()[0] == note
    assert UNSEEN in shown.stderr  # the label does not count as an unseen word
    rows = [json.loads(line) for line in said("run", "labelled.tsv", "--json")]
    assert [row["text"] for row in rows] == TEXTS


def test_documents_without_words_are_named_and_counted(at_desk):
    shown = typed("run", "in.txt")
    assert shown.stderr.splitlines() == [
        "regard: in.txt, line 2: a document without words",
        "regard: in.txt, line 4: a document without words",
        "regard: 2 of 5 documents have no words and get no label",
        UNSEEN,
    ]
    many = typed("run", stdin="\n" * 30)
    assert many.stdout == "\n" * 30
    assert many.stderr.count("without words") == 10
    assert many.stderr.splitlines()[-1] == "regard: 30 of 30 documents have no words and get no label"


def test_an_odd_byte_does_not_stop_the_documents_after_it(at_desk):
    expected = [each.label for each in load("run").classify(["Good .", "soup � .", "Bad !"])]
    for arguments, stdin in ((["odd.txt"], None), ([], (at_desk / "odd.txt").read_bytes())):
        shown = typed("run", *arguments, stdin=stdin)
        assert (shown.exit_code, shown.stdout.splitlines()) == (0, expected)
        note = "1 line has bytes that are not UTF-8 and were read as �: line 2, byte 6 (0xe4); convert it to UTF-8"
        assert f"{'odd.txt' if arguments else 'standard input'}: {note}, or add --encoding cp1252 (" in shown.stderr


def test_scores_and_json(at_desk, tmp_path):
    found = load("run").classify(TEXTS)
    for line, each in zip(said("run", "in.txt", "--scores"), found, strict=True):
        assert line == (f"{each.label}\t{each.probability:.4f}" if each else "")
    for line, text, each in zip(said("run", "in.txt", "--json"), TEXTS, found, strict=True):
        row = json.loads(line)
        assert row["text"] == text
        assert row["label"] == (each.label if each else None)
        if each:
            assert row["probabilities"] == pytest.approx(each.probabilities, abs=1e-5)
            assert row["probability"] == max(row["probabilities"].values())
    assert said("run", "in.txt", "--out", tmp_path / "out.txt") == []
    assert (tmp_path / "out.txt").read_text().split("\n")[:-1] == said("run", "in.txt")


def test_pictures(tmp_path):
    start(question_table(tmp_path), tmp_path / "run")
    pictures = sorted((tmp_path / "questions" / "pictures").glob("*.png"))[:3]
    found = load(tmp_path / "run").classify(pictures)
    assert said(tmp_path / "run", *pictures) == [f"{p}\t{each.label}" for p, each in zip(pictures, found, strict=True)]
    assert said(tmp_path / "run", pictures[0]) == [found[0].label]
    row = json.loads(said(tmp_path / "run", pictures[1], "--json")[0])
    assert (row["picture"], row["label"]) == (str(pictures[1]), found[1].label)
    (tmp_path / "no.png").write_text("nothing")
    shown = typed(tmp_path / "run", pictures[0], tmp_path / "no.png")
    assert shown.stdout == f"{pictures[0]}\t{found[0].label}\n"
    assert shown.stderr.splitlines()[-1] == "regard: 1 of 2 pictures cannot be read and are skipped"
    assert "no.png" in refused(tmp_path / "run", tmp_path / "no.png")
    assert refused(tmp_path / "run") == f"which pictures? {tmp_path}/run reads pictures; give files, or folders of them"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("gone", "gone: no such folder, expected a run folder"),
        ("translator in.txt", "translator: its task is translate, expected classify; use regard translate"),
        ("run gone.txt", "gone.txt: no such file"),
        ("run data", "data: a folder given, expected a file"),
        ("run in.txt in.gz", "in.gz: a second argument given, expected one text, or one file of a document a line"),
        ("run in.txt --out in.txt", "--out: in.txt is an input file"),
    ],
)
def test_mistakes_are_one_sentence(at_desk, arguments, message):
    assert refused(*shlex.split(arguments)).startswith(message)


def test_a_text_is_labelled_as_it_is_typed(at_desk):
    text = "The soup was good ."
    assert said("run", text) == [load("run").classify([text])[0].label]
    assert said("run", "Good", "--text") == [load("run").classify(["Good"])[0].label]
    assert refused("run", "Good") == "Good: no such file; if it is a text, add --text"
