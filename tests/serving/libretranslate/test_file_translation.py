"""Files to translate: what they are is in their names, and what cannot be read is refused in a sentence."""

import pytest

from regard.serving.libretranslate.errors import ProtocolError
from regard.serving.libretranslate.markup import Document
from regard.serving.libretranslate.translation import ENDINGS, PlainText, Subtitles, read_file


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.txt", PlainText), ("b.c.HTML", Document), ("d.htm", Document), ("e.Srt", Subtitles), (".txt", PlainText)],
)
def test_the_ending_says_what_it_is(name, kind):
    assert isinstance(read_file(name, b"Hello", 100).document, kind)


def test_every_ending_is_read():
    for ending in ENDINGS:
        assert read_file(f"x{ending}", b"Hello", 5).original == "Hello"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.docx", b"x", "is not supported, expected .txt"),
        ("txt", b"x", "is not supported"),
        ("", b"x", "empty file"),
        ("a.txt", b"", "empty file"),
        ("a.txt", b"\xff", "UTF-8 or UTF-16"),
        ("a.txt", b"\xff\xfe\x00\xd8", "UTF-8 or UTF-16"),
        ("a.txt", b"x" * 101, "file (101) exceeds text limit (100)"),
    ],
)
def test_what_is_refused(name, content, words):
    with pytest.raises(ProtocolError) as error:
        read_file(name, content, 100)
    assert error.value.status == 400
    assert words in str(error.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings(encoding):
    assert read_file("a.txt", "Ein Übergang — 你好".encode(encoding), 100).texts == ["Ein Übergang — 你好"]


def test_a_plain_text_keeps_its_empty_lines():
    assert PlainText("\n a\n\n").render([("b", [])]) == "\n b\n\n"
