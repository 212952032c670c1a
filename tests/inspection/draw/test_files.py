"""Files of pages and pictures: how many there are, what they are called, and what is refused."""

from dataclasses import replace

import pytest
from inspection import exhibits

from regard.errors import CommandError
from regard.inspection.draw.files import OutputPaths, write_exhibit

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


def test_an_exhibit_is_written_by_its_suffix(tmp_path):
    exhibit = exhibits.transformer(layers=1, heads=2)
    assert "<html" in write_exhibit(exhibit, tmp_path / "look.html").read_text(encoding="utf-8")
    every = write_exhibit(replace(exhibit, ablation=None), tmp_path / "all.svg").read_text(encoding="utf-8")
    assert [name in every for name in ("decoder, layer 1, to the source", "head 1", "head 2")] == [True] * 3
    by_name = write_exhibit(exhibit, tmp_path / "one.svg", view=exhibit.views[0].name, head=1)
    assert by_name.read_text(encoding="utf-8").count("<svg") == 1
