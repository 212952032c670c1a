"""Inputs of a look: texts, files of them, pictures; what is a file and what is a text."""

import io
import sys

import pytest
from inspection.subjects import subject

from regard.errors import CommandError
from regard.inspection.collect.inputs import read_against, read_inputs


def quiet(text):
    raise AssertionError(text)


@pytest.mark.parametrize("text", ["", " ", "A man rides a horse.", "see notes.txt here", "a\0b c", "x " * 5000])
def test_a_text_is_a_text(text):
    assert read_inputs(subject("rnnsearch"), [text], 1, quiet) == [text]


def test_what_is_there_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("a text\n")
    assert read_inputs(subject("rnnsearch"), ["plain"], 1, quiet) == ["a text"]
    (tmp_path / "data").mkdir()
    for folder in ("data", str(tmp_path), "./"):
        with pytest.raises(CommandError, match="a folder given, expected a file; if it is a text, add --text"):
            read_inputs(subject("rnnsearch"), [folder], 1, quiet)


@pytest.mark.parametrize(
    "text", ["missing.txt", "./missing", "/no/such/folder/", "pizza", "and/or", "a\0b", "x" * 5000]
)
def test_a_word_that_names_nothing_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match="no such file; if it is a text, add --text"):
        read_inputs(subject("rnnsearch"), [text], 1, quiet)
    with pytest.raises(CommandError, match="--against: .* no such folder or file, .*; if it is a text, add --text"):
        read_against(subject("rnnsearch"), text, 1)
    assert read_against(subject("rnnsearch"), text, 2, as_text=True) == [text, text]


def test_texts_and_files_line_by_line(tmp_path):
    (tmp_path / "two.txt").write_text("one\n\n  \ntwo\n")
    run = subject("rnnsearch")
    assert read_inputs(run, ["zero zero", str(tmp_path / "two.txt")], 3, quiet) == ["zero zero", "one", "two"]
    said = []
    assert read_inputs(run, ["zero zero", str(tmp_path / "two.txt")], 2, said.append) == ["zero zero", "one"]
    assert said == ["only the first 2 texts are shown; --count says how many"]


def test_labels_of_a_table_are_left_out(tmp_path):
    (tmp_path / "two.tsv").write_text("good\tone text\nbad\ttwo texts\n")
    said = []
    assert read_inputs(subject("han"), [str(tmp_path / "two.tsv")], 2, said.append) == ["one text", "two texts"]
    assert said == [f"{tmp_path / 'two.tsv'}: reading the documents in column 2; labels are ignored"]
    # A model that translates reads the sources.
    assert read_inputs(subject("rnnsearch"), [str(tmp_path / "two.tsv")], 1, said.append)[0] == "good"


def test_a_name_is_a_text_where_a_person_says_so():
    assert read_inputs(subject("rnnsearch"), ["missing.txt", "-"], 3, quiet, as_text=True) == ["missing.txt", "-"]


class Keyboard(io.TextIOWrapper):
    def isatty(self):
        return True


def test_a_person_at_the_keyboard_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Keyboard(io.BytesIO(b"a text\n")))
    assert read_inputs(subject("rnnsearch"), [], 3, quiet) == ["a text"]
    assert capsys.readouterr() == ("", "reading from the keyboard: one text per line, Ctrl-D to end\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a text\n")))  # a pipe
    assert read_inputs(subject("rnnsearch"), [], 3, quiet) == ["a text"]
    assert capsys.readouterr() == ("", "")


def test_standard_input_is_read_where_nothing_is_given(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a text\n")))
    assert read_inputs(subject("rnnsearch"), [], 3, quiet) == ["a text"]


def test_a_file_without_text_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(CommandError, match="no text in it"):
        read_inputs(subject("rnnsearch"), [str(tmp_path / "empty.txt")], 3, quiet)


def test_a_run_of_pictures_asks_for_pictures():
    with pytest.raises(CommandError, match="which pictures\\?"):
        read_inputs(subject("captioner"), [], 3, quiet)
