"""Files of pages and pictures: their number, their names, and refused inputs."""

import io
import sys

import pytest
from inspection.subjects import subject

from regard.errors import CommandError
from regard.inspection.look_files import OutputPaths, read_against, read_inputs

FORMATS = ("html", "png", "svg")


@pytest.mark.parametrize(
    ("out", "format", "count", "names"),
    [
        ("a.html", None, 1, ["a.html"]),
        ("a.svg", None, 3, ["a-1.svg", "a-2.svg", "a-3.svg"]),
        ("folder", "png", 2, ["folder/look-1.png", "folder/look-2.png"]),
        ("folder", None, 1, ["folder/look-1.html"]),
        ("new/folder/a.html", None, 1, ["new/folder/a.html"]),
    ],
)
def test_names_of_files(tmp_path, out, format, count, names):
    paths = OutputPaths.parse(tmp_path / out, format, FORMATS).list_paths(count)
    assert [str(path.relative_to(tmp_path)) for path in paths] == names
    assert all(path.parent.is_dir() for path in paths)


def test_nothing_given_is_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [str(path) for path in OutputPaths.parse(None, None, FORMATS).list_paths(1)] == ["look.html"]


def test_what_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "notes").write_text("mine")
    for out, format, said in (
        (tmp_path / "a.html", "pdf", "--format: 'pdf' given, expected html, png or svg"),
        (tmp_path / "a.html", "svg", "expected a name that ends in .svg"),
        (tmp_path / "notes", None, "is a file, expected a name that ends in .html, .png, .svg, or a folder"),
        (tmp_path / "notes.txt", None, "notes.txt given, expected a name that ends in .html, .png, .svg, or a folder"),
        (tmp_path / "new.docx", None, "new.docx given, expected a name that ends in .html"),
        (tmp_path / "new.JPG", None, "new.JPG given, expected a name that ends in .html"),
        (tmp_path / "notes.txt" / "a.html", None, "Not a directory; expected another name"),
    ):
        with pytest.raises(CommandError, match=said):
            OutputPaths.parse(out, format, FORMATS)


def test_an_input_is_not_written_over(tmp_path):
    (tmp_path / "a.png").write_bytes(b"a picture")
    with pytest.raises(CommandError, match="is an input file, expected another"):
        OutputPaths.parse(tmp_path / "a.png", None, FORMATS).list_paths(1, [str(tmp_path / "a.png")])


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
    # A translation model reads the sources.
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
