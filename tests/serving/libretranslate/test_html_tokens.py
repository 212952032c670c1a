"""Tokens of HTML: those of the standard, all of the text, and in time linear in its length."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.serving.libretranslate.markup import tokenise


def kinds(text):
    return [(token.kind, token.name or token.raw) for token in tokenise(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<a b='>'>x</a>", [("start", "a"), ("text", "x"), ("end", "a")]),
        ("<a b=\"'\" c='\">'>x", [("start", "a"), ("text", "x")]),
        ("<p x=a=\"'>y", [("start", "p"), ("text", "y")]),  # a value without quotes has them inside
        ("<p x=a=\"' title=\">y", [("tail", "<p x=a=\"' title=\">y")]),
        ("<a =\">\">", [("start", "a"), ("text", '">')]),  # = begins a name here
        ("<a/b='>'/>x", [("start", "a"), ("text", "x")]),
        ("<A\fB>", [("start", "a")]),
        ("a < b <3 <", [("text", "a < b <3 <")]),
        ("x<a", [("text", "x"), ("tail", "<a")]),
        ("x<a b='>", [("text", "x"), ("tail", "<a b='>")]),
        ("<!-->x<!--->y<!--a--!>z", [("point", "<!-->"), ("text", "x"), ("point", "<!--->"), ("text", "y"),
                                     ("point", "<!--a--!>"), ("text", "z")]),
        ("x<!-- <b>", [("text", "x"), ("tail", "<!-- <b>")]),
        ("<![CDATA[<b>]]>", [("block", "<![CDATA[<b>"), ("text", "]]>")]),  # there is no such section in HTML
        ("</ b></>", [("block", "</ b>"), ("block", "</>")]),
        ("<title><b></title>", [("start", "title"), ("text", "<b>"), ("end", "title")]),
        ("<textarea></textareas></TEXTAREA >", [("start", "textarea"), ("text", "</textareas>"), ("end", "textarea")]),
        ("<script><!--<script></script>--></script>",
         [("start", "script"), ("text", "<!--<script></script>-->"), ("end", "script")]),
        ("<script><!--<script></script></script>x",
         [("start", "script"), ("text", "<!--<script></script>"), ("end", "script"), ("text", "x")]),
        ("<script><!--><script></script>x",
         [("start", "script"), ("text", "<!--><script>"), ("end", "script"), ("text", "x")]),
        ("<style>x", [("tail", "<style>x")]),
        ("<svg><title>a</title></svg>b", [("whole", "svg"), ("text", "b")]),
        ("<svg><style><![CDATA[a<b]]></style></svg>", [("tail", "<svg><style><![CDATA[a<b]]></style></svg>")]),
        ("<svg><style><![CDATA[a>b]]></style></svg>b", [("whole", "svg"), ("text", "b")]),
        ("<svg/>x", [("whole", "svg"), ("text", "x")]),
        ("<svg a=/>x", [("tail", "<svg a=/>x")]),
        ("<svg><p>x</svg>", [("tail", "<svg><p>x</svg>")]),
        ("<noscript><p title='</noscript><img>'>", [("tail", "<noscript><p title='</noscript><img>'>")]),
        ("<noscript><p>x</noscript>y", [("whole", "noscript"), ("text", "y")]),
        ("<select><style>x</style>", [("start", "select"), ("tail", "<style>x</style>")]),
        ("<plaintext><b>", [("tail", "<plaintext><b>")]),
    ],
)  # fmt: skip
def test_tokens(text, expected):
    assert kinds(text) == expected


def test_attributes():
    (token,) = tokenise("<a B=1 b='2' c = \"&amp;\" d =e / 'f g=/ h= i>")
    assert token.attributes == {"b": "1", "c": "&amp;", "d": "e", "'f": "", "g": "/", "h": "i"}


@settings(max_examples=200, deadline=None)
@given(st.text("<>/!-=\"' abp&;?[]\n", max_size=60))
def test_all_of_the_text_is_in_the_tokens(text):
    assert "".join(token.raw for token in tokenise(text)) == text


UNITS = ("<a ", "<a =' ", "<!--", "<!---->", "<![CDATA[", "<b>", "<p x=1 y='2' ", "<svg>", "<svg><g>", "<noscript>",
         "<script><!--", "<title>", "</b", "<a b=\"", "<", "&#", "<select><svg>", "<math><mi>",
         "<template><col>")  # fmt: skip


def seconds(text):
    begun = time.process_time()
    tokenise(text)
    return time.process_time() - begun


@pytest.mark.parametrize("unit", UNITS)
def test_the_time_is_linear(unit):
    """Ten times the length takes no more than thirty times as long; a square would be a hundred."""
    short, long = (unit * (size // len(unit)) for size in (20_000, 200_000))
    least = min(seconds(short) for _ in range(3))
    assert min(seconds(long) for _ in range(2)) < 30 * max(least, 0.002)


def test_random_pieces_are_all_there():
    rng = random.Random(random.randrange(2**32))
    for _ in range(300):
        text = "".join(rng.choice((*UNITS, ">", "x", "</svg>", "]]>", "-->", "</script>", "/>")) for _ in range(12))
        assert "".join(token.raw for token in tokenise(text)) == text
