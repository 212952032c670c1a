"""HTML comes back as the same tree: html5lib finds the same elements and attributes as before.

The tests draw valid and invalid documents. They replace the texts by other words: more, fewer or none, in another
order, with markup characters.
"""

import random
from collections import Counter

import pytest
from serving.fragments import FRAGMENTS

from regard.serving.libretranslate.markup import BLOCKS, parse_html

html5lib = pytest.importorskip("html5lib")

INLINE = ["b", "i", "a", "span", "sub", "em", "code", "kbd", "nobr", "font", "q", "custom-tag", "ruby", "rt"]
OUTER = [
    "p", "div", "li", "ul", "h1", "td", "tr", "table", "section", "blockquote", "pre", "select", "option", "button",
    "dl", "dd", "body", "form", "template",
]  # fmt: skip
RAWS = ["script", "style", "textarea", "title", "iframe", "noembed", "noframes", "xmp", "noscript"]
VOIDS = ["br", "img", "hr", "input", "wbr", "link", "meta", "col", "image", "area"]
VALUES = (
    "", "=x", "= x", "=''", '=""', '="a b"', "='\"'", "=\"' title=\"", "=a='b'", "=\"<b>\"", "='&quot;'", "==", "=/",
    "=a/", '="a"b', " =\n'x' ", "=`a`", '="&lt;i&gt;"', "=\"</p>\"", "='-->'", "=>", '="no"', "=é",
)  # fmt: skip
NAMES = ("class", "CLASS", "title", "x", "data-x", "translate", "onclick", "'", '"', "<", "=a", "a=")
TEXTS = (
    "Hello", "big dog", " ", "\n", "x", "&amp;", "&lt;b&gt;", "AT&T", "&quot; onmouseover=alert(1) &quot;", "'\"",
    "&copy",
    "<", "< b", "<3", "a<", ">", "/>", "]]>", "-->", "&#39;", "é", "0", "&notin;", "...", "&#0;", "\r\n", "\f",
)  # fmt: skip
ODD = (
    "<!-- a -->", "<!-->", "<!--->", "<!-- <b> -->", "<!--a--!>", "<!doctype html>", "<![CDATA[ <b> ]]>", "<?php a ?>",
    "</>", "</ b>", "</3>", "<!x>", "</br>", "</p>", "<b/>", "<br/>", "<a", "<a '", '<a x="', "<!--", "<![CDATA[", "<?",
    "<svg><title>a</title><path d='M0'/></svg>", "<svg><style>a>b</style></svg>", "<svg><b>x</b></svg>", "<svg/>",
    "<svg><style><![CDATA[a<b]]></style></svg>", "<svg><style><b></style></svg>", "<math><mi>x</mi></math>", "<svg>",
    "<script><!--<script></script>--></script>", "<script>a<!-->b</script>", "<svg><![CDATA[<b>]]></svg>", "<math><p>",
    "<select><style><b></style></select>", "<svg><foreignObject><p>x</p></foreignObject></svg>", "<frameset>",
    "<plaintext>", "<textarea>\n</textareas></textarea>", "<title>&lt;b> \"</title>", "<svg><p></svg>", "</svg>",
)  # fmt: skip


def draw_tag(rng, name):
    """Draw a start tag with any attributes."""
    attributes = "".join(
        rng.choice((" ", "\n", "/", " ")) + rng.choice(NAMES) + rng.choice(VALUES)
        for _ in range(rng.choice((0, 0, 1, 2, 4)))
    )
    name = name.upper() if rng.random() < 0.1 else name
    return f"<{name}{attributes}{rng.choice(('', '', '', ' ', '/'))}>"


def draw_nested(rng, depth):
    """Draw properly nested markup."""
    parts = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.4 or not depth:
            parts.append(rng.choice(TEXTS))
        elif kind < 0.8:
            name = rng.choice(INLINE if rng.random() < 0.7 else OUTER)
            parts.append(f"{draw_tag(rng, name)}{draw_nested(rng, depth - 1)}</{name}>")
        elif kind < 0.9:
            parts.append(draw_tag(rng, rng.choice(VOIDS)))
        else:
            name = rng.choice(RAWS)
            parts.append(f"{draw_tag(rng, name)}{draw_loose(rng, 3)}</{name}>")
    return rng.choice((" ", "")).join(parts)


def draw_loose(rng, count):
    """Draw tags in any order, and invalid markup."""
    parts = []
    for _ in range(rng.randint(1, count)):
        kind, name = rng.random(), rng.choice(INLINE + OUTER + VOIDS + (RAWS if rng.random() < 0.1 else []))
        if kind < 0.35:
            parts.append(rng.choice(TEXTS))
        elif kind < 0.65:
            parts.append(draw_tag(rng, name))
        elif kind < 0.9:
            parts.append(f"</{name}>")
        else:
            parts.append(rng.choice(ODD))
    return rng.choice((" ", "")).join(parts)


def draw(rng):
    """Draw a document."""
    kind = rng.random()
    if kind < 0.4:
        return draw_nested(rng, 4)
    if kind < 0.7:
        return draw_loose(rng, 12)
    if kind < 0.9:
        return draw_nested(rng, 2) + draw_loose(rng, 4) + draw_nested(rng, 2)
    return rng.choice(FRAGMENTS) + rng.choice(ODD) + rng.choice(FRAGMENTS)


def same(rng, text):
    return text, [(i, i) for i in range(len(text.split()))]


def other(rng, text):
    """Draw other words in any number and order, at least one, with random links."""
    count = len(text.split())
    words = [
        rng.choice(("Hund", "<b>", "\"'", "&amp;", "--><script>", "' x='")) for _ in range(rng.randint(1, 2 * count))
    ]
    return " ".join(words), [
        (rng.randrange(count), rng.randrange(len(words))) for _ in range(rng.randint(0, 2 * count))
    ]


def read(text, whole):
    """Return the tree of a document, with comments before its first element, or of a fragment."""
    if whole:
        parser = html5lib.HTMLParser(namespaceHTMLElements=False)
        parser.parse(text)
        return parser.tree.document._element
    return html5lib.parseFragment(text, container="div", namespaceHTMLElements=False)


def list_elements(tree):
    """List each element with its attributes and the blocks around it.

    A comment before everything else stands in front of the body, which begins with the first text: the two may swap.
    """
    rows, stack = [], [(tree, ())]
    while stack:
        node, path = stack.pop()
        name = node.tag if isinstance(node.tag, str) else "comment"
        place = tuple(each for each in path if each not in ("html", "head", "body")) if name == "comment" else path
        row = (place, name, tuple(sorted(map(str, node.attrib.items()))), node.text if name == "comment" else "")
        rows.append(row)
        inner = (*path, name) if name in BLOCKS else path
        stack += [(child, inner) for child in reversed(node)]
    return rows


def list_blocks(rows):
    """List the blocks, which keep their order."""
    return [row for row in rows if row[1] in BLOCKS]


def list_text(tree):
    """Count the characters of all texts; those of a word in several elements may swap."""
    return Counter(each for each in "".join(tree.itertext()) if each.isprintable() and not each.isspace())


def check(page, rng):
    document = parse_html(page)
    for translator in (same, other):
        result = document.render([translator(rng, text) for text in document.texts])
        for whole in (False, True):
            before, after = list_elements(read(page, whole)), list_elements(read(result, whole))
            assert Counter(after) == Counter(before), (page, result)
            assert list_blocks(after) == list_blocks(before), (page, result)
            if translator is same:
                assert list_text(read(result, whole)) == list_text(read(page, whole)), (page, result)


def test_what_looks_like_an_attribute_in_a_text_is_text():
    page = """<p x=a="' title=">Where &quot; onmouseover=alert(1) &quot; <b>">Hello</b></p>"""
    check(page, random.Random(0))
    document = parse_html(page)
    result = document.render([("\" onmouseover=alert(1) '", ()) for _ in document.texts])
    assert "&quot; onmouseover=alert(1) &#x27;" in result
    tree = html5lib.parseFragment(result, namespaceHTMLElements=False)
    assert not [name for each in tree.iter() for name in each.attrib if name == "onmouseover"]


@pytest.mark.parametrize("page", FRAGMENTS + list(ODD), ids=range(len(FRAGMENTS) + len(ODD)))
def test_fragments(page):
    check(page, random.Random(0))
    check(f"<p>One {page} two <i>three</i></p>", random.Random(0))


@pytest.mark.parametrize(
    "count", [400, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])], ids=str
)
def test_documents(count):
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(count):
        check(draw(rng), rng)
