"""HTML: blocks are translated as a whole with their tags, and everything else stays unchanged."""

import html
import random
import time
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving.fragments import FRAGMENTS

from regard.serving.libretranslate.markup import VOID, Segment, keep_whole, match_elements, parse_html, tokenise


def kinds(text):
    return [(token.kind, token.name or token.raw) for token in tokenise(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<a b='>'>x</a>", [("start", "a"), ("text", "x"), ("end", "a")]),
        ("<a b=\"'\" c='\">'>x", [("start", "a"), ("text", "x")]),
        ("<p x=a=\"'>y", [("start", "p"), ("text", "y")]),  # in a value without quotes they are characters
        ("<p x=a=\"' title=\">y", [("tail", "<p x=a=\"' title=\">y")]),
        ("<a =\">\">", [("start", "a"), ("text", '">')]),  # the name begins with =
        ("<a/b='>'/>x", [("start", "a"), ("text", "x")]),
        ("<A\fB>", [("start", "a")]),
        ("a < b <3 <", [("text", "a < b <3 <")]),
        ("x<a", [("text", "x"), ("tail", "<a")]),
        ("x<a b='>", [("text", "x"), ("tail", "<a b='>")]),
        ("<!-->x<!--->y<!--a--!>z", [("point", "<!-->"), ("text", "x"), ("point", "<!--->"), ("text", "y"),
                                     ("point", "<!--a--!>"), ("text", "z")]),
        ("x<!-- <b>", [("text", "x"), ("tail", "<!-- <b>")]),
        ("<![CDATA[<b>]]>", [("block", "<![CDATA[<b>"), ("text", "]]>")]),  # HTML has no such section
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
        ("<svg><title>a</title></svg>b", [("block", "svg"), ("text", "b")]),
        ("<svg><style><![CDATA[a<b]]></style></svg>", [("tail", "<svg><style><![CDATA[a<b]]></style></svg>")]),
        ("<svg><style><![CDATA[a>b]]></style></svg>b", [("block", "svg"), ("text", "b")]),
        ("<svg/>x", [("block", "svg"), ("text", "x")]),
        ("<svg a=/>x", [("tail", "<svg a=/>x")]),
        ("<svg><p>x</svg>", [("tail", "<svg><p>x</svg>")]),
        ("<noscript><p title='</noscript><img>'>", [("tail", "<noscript><p title='</noscript><img>'>")]),
        ("<noscript><p>x</noscript>y", [("block", "noscript"), ("text", "y")]),
        ("<noscript><select></noscript><title><b>", [("tail", "<noscript><select></noscript><title><b>")]),
        ("<noscript><em></noscript>x", [("tail", "<noscript><em></noscript>x")]),
        ("<noscript><a href=x>y</a></noscript>z", [("block", "noscript"), ("text", "z")]),
        ("<select><style>x</style>", [("start", "select"), ("tail", "<style>x</style>")]),
        ("<plaintext><b>", [("tail", "<plaintext><b>")]),
    ],
)  # fmt: skip
def test_tokens(text, expected):
    assert kinds(text) == expected


def test_attributes():
    (token,) = tokenise("<a B=1 b='2' c = \"&amp;\" d =e / 'f g=/ h= i>")
    assert token.attributes == {"b": "1", "c": "&amp;", "d": "e", "'f": "", "g": "/", "h": "i"}


UNITS = ("<a ", "<a =' ", "<!--", "<!---->", "<![CDATA[", "<b>", "<p x=1 y='2' ", "<svg>", "<svg><g>", "<noscript>",
         "<script><!--", "<title>", "</b", "<a b=\"", "<", "&#", "<select><svg>", "<math><mi>",
         "<template><col>")  # fmt: skip


def seconds(text):
    begun = time.process_time()
    tokenise(text)
    return time.process_time() - begun


@pytest.mark.parametrize("unit", UNITS)
def test_the_time_is_linear(unit):
    """Ten times the length takes at most thirty times as long; quadratic time would be a hundred."""
    short, long = (unit * (size // len(unit)) for size in (20_000, 200_000))
    least = min(seconds(short) for _ in range(3))
    assert min(seconds(long) for _ in range(2)) < 30 * max(least, 0.002)


def test_random_pieces_are_all_there():
    rng = random.Random(random.randrange(2**32))
    for _ in range(300):
        text = "".join(rng.choice((*UNITS, ">", "x", "</svg>", "]]>", "-->", "</script>", "/>")) for _ in range(12))
        assert "".join(token.raw for token in tokenise(text)) == text


class Reader(HTMLParser):
    """An independent reader of HTML: tags with attributes, the text, and whether start and end tags match."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.other, self.stack, self.well_formed = [], [], [], [], True
        self.feed(text)
        self.close()
        self.well_formed = self.well_formed and not self.stack

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, tuple(attributes)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, tuple(attributes)))

    def handle_endtag(self, tag):
        self.tags.append((f"/{tag}", ()))
        if not self.stack or self.stack.pop() != tag:
            self.well_formed = False

    def handle_data(self, data):
        self.text.append(data)

    def handle_comment(self, data):
        self.other.append(("comment", data))

    def handle_decl(self, data):
        self.other.append(("declaration", data))

    def handle_pi(self, data):
        self.other.append(("instruction", data))


def same(text, number):
    return text, [(i, i) for i in range(len(text.split()))]


def backwards(text, number):
    words = text.split()
    return " ".join(reversed(words)), [(i, len(words) - 1 - i) for i in range(len(words))]


def longer(text, number):
    """Return each word twice, with random links, and markup characters."""
    words = [each for word in text.split() for each in (word.upper(), f"<{word}>&amp;")]
    rng = random.Random(number)
    return " ".join(words), [(rng.randrange(len(words)), rng.randrange(len(words))) for _ in words]


def shorter(text, number):
    return "</b><script>alert(1)</script>", [(0, 0)]


def nothing(text, number):
    return "", []


TRANSLATORS = [same, backwards, longer, shorter, nothing]


def render(document, translator):
    rows = [translator(text, number) for number, text in enumerate(document.texts)]
    return document.render(rows), [row[0] for row in rows]


def letters(parts):
    """Count the characters of texts, without spaces."""
    return Counter(c for part in parts for c in part if not c.isspace())


def stay_texts(document):
    """Return the untranslated text, from the independent reader."""
    whole = "".join(part for part in document.parts if isinstance(part, str))
    points = "".join(raw for part in document.parts if isinstance(part, Segment) for raw in point_texts(part.nodes))
    return [*Reader(whole).text, *Reader(points).text]


def join_whole(text):
    """Return all tokens of a text, joined again after untranslated parts have become one token each."""
    tokens = tokenise(text)
    return "".join(token.raw for _, token in keep_whole(tokens, match_elements(tokens)[0]))


def point_texts(nodes):
    for node in nodes:
        if hasattr(node, "raw"):
            yield node.raw
        else:
            yield from point_texts(node.children)


@pytest.mark.parametrize("translator", TRANSLATORS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("fragment", FRAGMENTS, ids=range(len(FRAGMENTS)))
def test_fragments(fragment, translator):
    """Translation keeps tags, attributes, nesting and all of the text, and makes no new markup."""
    document = parse_html(fragment)
    result, translations = render(document, translator)
    before, after = Reader(fragment), Reader(result)
    assert Counter(after.tags) == Counter(before.tags)
    assert Counter(after.other) == Counter(before.other)
    assert after.well_formed or not before.well_formed
    if before.well_formed:
        assert letters(after.text) == letters([*translations, *stay_texts(document)])


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=range(len(FRAGMENTS)))
def test_what_is_not_changed_is_the_same(fragment):
    """If the texts stay the same, the independent reader finds the same tags in order, around the same text."""
    document = parse_html(fragment)
    before, after = Reader(fragment), Reader(render(document, same)[0])
    if before.well_formed:
        assert after.tags == before.tags
        assert "".join(after.text).split() == "".join(before.text).split()
    assert "".join(token.raw for token in tokenise(fragment)) == fragment
    assert join_whole(fragment) == fragment


def test_a_block_is_one_text():
    page = "<h1>A <b>big</b> title</h1><p>One <a href='x'>two <i>three</i></a>. Four.<p>Five<br>six<ul><li>seven"
    assert parse_html(page).texts == ["A big title", "One two three. Four.", "Five", "six", "seven"]


def test_tags_follow_their_words():
    document = parse_html('<p>I ate <b class="x">pizza</b> <i>yesterday</i>.</p>')
    links = [(0, 0), (1, 4), (2, 3), (3, 2)]
    result = document.render([("Ich habe gestern Pizza gegessen.", links)])
    assert result == '<p>Ich habe <i>gestern</i> <b class="x">Pizza</b> gegessen.</p>'


@pytest.mark.parametrize(
    "stays",
    [
        "<code>a &lt; b</code>",
        '<span translate="no">Regard</span>',
        "<span translate=no>Regard</span>",
        "<B TRANSLATE='NO'>Regard <i>itself</i></B>",
        '<i class="big notranslate">Regard</i>',
        "<kbd>Ctrl</kbd>",
        '<span translate="no"><span>inner</span> outer</span>',
    ],
)
def test_what_is_not_translated_stays(stays):
    document = parse_html(f"Use {stays}, please.")
    assert document.texts == ["Use, please."]
    assert document.render([("Bitte, benutze.", [(0, 1), (1, 0)])]) == f"Bitte, benutze {stays}."
    assert parse_html(stays).texts == []
    assert parse_html(stays).render([]) == stays


def test_punctuation_is_joined_to_the_word_before_code_only_where_nothing_is_between():
    for text, joined in (
        ("Type <code>ls</code>.", "Type."),
        ("Type <b><code>ls</code></b>.", "Type."),
        ("Type <code>ls</code> .", "Type ."),
        ("Type <code>ls</code> <b>.</b>", "Type ."),
        ("Type <code>ls</code> <code>-l</code><b>)</b>", "Type)"),
        ("Type <img> (this)", "Type (this)"),
    ):
        assert parse_html(text).texts == [joined]


def test_blocks_that_are_not_translated_stay():
    page = (
        "<pre>a <b>b</b>\n c</pre><script>if (a < b) '<p>'</script><style>p {}</style><div translate=no>x<p>y</p></div>"
    )
    assert parse_html(page).texts == []
    assert parse_html(page).render([]) == page
    assert parse_html('<p translate="yes">x</p><p data-translate="no">y</p>').texts == ["x", "y"]


def test_entities():
    document = parse_html("<p>Fish &amp; chips &lt;b&gt; caf&eacute; &#8364;5 &copy AT&T</p>")
    assert document.texts == ["Fish & chips <b> café €5 © AT&T"]
    assert document.render([("A & B <i>", [])]) == "<p>A &amp; B &lt;i&gt;</p>"
    assert parse_html('<a href="?a=1&amp;b=2">x</a>').render([("y", [])]) == '<a href="?a=1&amp;b=2">y</a>'


def test_white_space_is_that_of_a_browser():
    document = parse_html("<p>\n  one\n  two\t<b> three </b>\n</p>")
    assert document.texts == ["one two three"]
    assert document.render([same("one two three", 0)]) == "<p>\n  one two <b>three</b>\n</p>"


def test_texts_without_words_stay():
    texts = ("<p>&nbsp;</p>", "<td>—</td>", "<p> <b> </b> </p>", "", "   ", "<hr>", "<p>***</p>", "<a href=x><img></a>")
    for text in texts:
        assert parse_html(text).texts == []
        assert parse_html(text).render([]) == text


@settings(max_examples=200, deadline=None)
@given(st.text("<>/!-=\"' abp&;?[]\n", max_size=60))
def test_any_text_is_read_and_written(text):
    """Nothing fails, and everything except the text stays unchanged."""
    document = parse_html(text)
    result, _ = render(document, same)
    assert join_whole(text) == text
    assert letters([html.unescape(result)]) == letters([html.unescape(html.unescape(text))]) or "&" in text


@pytest.mark.parametrize(
    "text",
    [
        "<a " * 20_000,
        "<a ='" * 20_000,
        "<!--" * 20_000,
        "<b>" * 20_000 + "x",
        "<b>x" * 10_000 + "</b>" * 10_000,
        "<code>" * 20_000,
        "</b>" * 20_000 + "x",
        "<title>" * 10_000,
        "x<i>y</b>" * 4_000,
        "<![CDATA[" * 10_000,
        "<p class='" * 10_000 + ">",
        "&lt;" * 20_000,
        "<script>" * 10_000,
    ],
    ids=lambda text: text[:9],
)
def test_bombs_take_little_time(text):
    begun = time.process_time()
    result, _ = render(parse_html(text), same)
    assert len(result) >= len(text) * 0.9
    assert time.process_time() - begun < 2
