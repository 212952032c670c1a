"""Subtitles: numbers, times and everything that is no text stay; the text of a cue is translated as a whole."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.serving.libretranslate.translation import parse_srt, wrap

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
