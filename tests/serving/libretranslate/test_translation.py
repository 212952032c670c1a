"""Files to translate: the suffix gives the format, and one sentence refuses an unreadable file."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving.served import serve, stored

from regard.decoding import Options
from regard.serving.errors import ProtocolError
from regard.serving.libretranslate import routes
from regard.serving.libretranslate.language_pairs import LanguagePair
from regard.serving.libretranslate.markup import Document, parse_html
from regard.serving.libretranslate.routes import (
    FileStore,
    PlainText,
    Subtitles,
    clean_name,
    parse_srt,
    read_file,
    render_all,
    translate_linked,
    wrap,
)

PAIR = LanguagePair("transformer", "en", "de")
FILE = """1
00:00:01,000 --> 00:00:02,500
The dog sleeps
and does not wake up.

2
00:00:03,000 --> 00:00:04,000 X1:40 X2:600
<i>Where</i> do you live?

3
00:00:05,000 --> 00:00:06,000
- I eat bread.
- Me too!

4
00:00:07,000 --> 00:00:08,000
{\\an8}<font color="#ff0000">Red</font> & blue

5
00:00:09,000 --> 00:00:10,000

6
00:00:11,000 --> 00:00:12,000
1984
"""


@pytest.fixture(scope="module")
def server():
    with serve(*stored("transformer", "rnn"), languages=["rnn=en-de"]) as found:
        yield found


def test_the_space_around_a_text_is_kept():
    for text, expected in ((" \n a b\t", " \n c\t"), ("\n a\n\n", "\n c\n\n"), ("a", "c"), ("", ""), (" \n", " \n")):
        assert PlainText(text).render([("c", ())]) == expected


def test_links_are_those_of_the_service(server):
    texts = ["the dog sleeps", "", "where do you live ? I eat bread ."]
    found = server.call(translate_linked(server.service, PAIR, texts, Options(nbest=2)))
    assert found[1] == [("", ())]
    table = {"texts": [texts[0], texts[2]], "model": "transformer", "nbest": 2, "alignment": True}
    expected = server.results("/v1/translate", table)
    for own, other in zip((found[0], found[2]), expected, strict=True):
        assert own == [(each["text"], [tuple(link) for link in each["alignment"]]) for each in other["outputs"]]
    assert any(links for _, links in found[0])


def test_a_model_without_attention_has_no_links(server):
    found = server.call(translate_linked(server.service, LanguagePair("rnn", "en", "de"), ["the dog"], Options()))
    assert found[0][0][1] == []


def test_plain_texts_and_nothing_at_all(server):
    assert server.call(render_all(server.service, PAIR, [], Options())) == []
    assert server.call(render_all(server.service, PAIR, [PlainText(" ")], Options())) == [[" "]]
    (one,) = server.call(render_all(server.service, PAIR, [PlainText(" the dog\n")], Options(nbest=3)))
    assert len(one) == 3
    assert all(each.startswith(" ") and each.endswith("\n") for each in one)


def test_documents_share_one_request(server):
    documents = [parse_html("<p>the <b>dog</b></p><p>the cat</p>"), parse_html("<hr>"), parse_html("the dog")]
    one, two, three = server.call(render_all(server.service, PAIR, documents, Options(nbest=2)))
    assert len(one) == len(three) == 2
    assert two == ["<hr>"]
    assert all(each.count("<p>") == 2 and each.count("<b>") == 1 for each in one)


def shout(text):
    return text.upper(), [(i, i) for i in range(len(text.split()))]


def test_a_file():
    subtitles = parse_srt(FILE)
    assert subtitles.texts == [
        "The dog sleeps and does not wake up.",
        "Where do you live?",
        "I eat bread.",
        "Me too!",
        "Red & blue",
        "1984",
    ]
    written = subtitles.render([shout(text) for text in subtitles.texts])
    assert written == (
        FILE.replace("The dog sleeps\nand does not wake up.", "THE DOG SLEEPS AND\nDOES NOT WAKE UP.")
        .replace("<i>Where</i> do you live?", "<i>WHERE</i> DO YOU LIVE?")
        .replace("I eat bread.", "I EAT BREAD.")
        .replace("Me too!", "ME TOO!")
        .replace(">Red</font> & blue", ">RED</font> & BLUE")
    )


def test_ends_of_lines_and_a_file_that_ends_at_once():
    text = "1\r\n00:00:01,000 --> 00:00:02,000\r\nHello"
    assert parse_srt(text).render([("Hallo", [])]) == "1\n00:00:01,000 --> 00:00:02,000\nHallo"
    assert parse_srt("").render([]) == ""
    assert parse_srt("no subtitles\n\nat all").texts == []


def test_a_translation_has_as_many_lines():
    assert wrap("one two three four", 2) == "one two\nthree four"
    assert wrap("one", 3) == "one"
    assert wrap("", 2) == ""
    assert wrap('a <font color="x y">b c</font>', 1) == 'a <font color="x y">b c</font>'


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_no_word_is_lost_where_lines_end(lines):
    words = [f"w{'x' * (i * 7 % 11)}{i}" for i in range(30)]
    rows = wrap(" ".join(words), lines).split("\n")
    assert len(rows) == lines
    assert " ".join(rows).split() == words
    assert max(map(len, rows)) < 2 * min(map(len, rows))


@settings(max_examples=100, deadline=None)
@given(st.text("1:,- >0\n\rab<i>{\\}", max_size=80))
def test_any_text_is_read_and_written(text):
    subtitles = parse_srt(text)
    written = subtitles.render([(each, []) for each in subtitles.texts])
    plain = re.sub(r"\s", "", text)
    assert len(re.sub(r"\s", "", written)) == len(plain) or "<" in text


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.txt", PlainText), ("b.c.HTML", Document), ("d.htm", Document), ("e.Srt", Subtitles), (".txt", PlainText)],
)
def test_the_ending_says_what_it_is(name, kind):
    text, document = read_file(name, b"Hello", 5)
    assert (text, type(document)) == ("Hello", kind)


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
    assert read_file("a.txt", "Ein Übergang — 你好".encode(encoding), 100)[1].texts == ["Ein Übergang — 你好"]


def test_a_file_is_held_for_a_while():
    now = [0.0]
    store = FileStore(lambda: now[0])
    key = store.add("letter.txt", b"text")
    assert store.get(key) == ("letter.txt", b"text")
    assert store.get("letter.txt") is None
    now[0] = routes.SECONDS - 1
    assert store.get(key) is not None
    now[0] = routes.SECONDS + 1
    assert store.get(key) is None
    assert store.size == 0


def test_names_are_secret_and_never_the_same():
    store = FileStore()
    keys = {store.add("a.txt", b"") for _ in range(50)}
    assert len(keys) == 50
    assert all(len(key) > 32 and key.endswith(".a.txt") and "/" not in key for key in keys)


def test_the_oldest_goes_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(routes, "FILES", 3)
    store = FileStore()
    keys = [store.add("a.txt", b"x") for _ in range(5)]
    assert [store.get(key) is not None for key in keys] == [False, False, True, True, True]
    monkeypatch.setattr(routes, "BYTES", 10)
    large = store.add("b.txt", b"x" * 10)
    assert store.get(large) is not None
    assert store.get(keys[-1]) is None
    assert store.size == 10
    too_large = store.add("c.txt", b"x" * 11)
    assert store.get(too_large) is None
    assert store.size == 0


def test_names_of_files_are_harmless():
    assert clean_name("letter.txt") == "letter.txt"
    assert clean_name("../../etc/passwd") == "passwd"
    assert clean_name("C:\\x\\y.srt") == "y.srt"
    assert clean_name('a"\r\nb: c.html') == "a_b_c.html"
    assert clean_name("Übung 1.txt") == "_bung_1.txt"
    assert clean_name("") == clean_name("...") == "file"
    assert len(clean_name("x" * 1000 + ".txt")) == 100
