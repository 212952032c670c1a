"""Placement of tags: all tags, properly nested, around the translations of their words, whatever the links are."""

import html
import re
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.serving.libretranslate.tag_placement import Element, Point, place_tags

TAGS = re.compile(r"<[^<>]*>")


def element(name, source, text, *children):
    """Return an element around the first occurrence of a text in the source."""
    first = source.index(text)
    return Element(f"<{name}>", f"</{name}>", first, first + len(text), children)


def place(source, target, links, *nodes):
    return place_tags(source, target, links, nodes)


def test_a_tag_follows_its_word():
    source, target = "I ate pizza yesterday", "Ich habe gestern Pizza gegessen"
    links = [(0, 0), (1, 1), (1, 4), (2, 3), (3, 2)]
    assert place(source, target, links, element("b", source, "pizza")) == "Ich habe gestern <b>Pizza</b> gegessen"
    assert place(source, target, links, element("b", source, "yesterday")) == "Ich habe <b>gestern</b> Pizza gegessen"
    # Of two separate words, one run without foreign words is chosen.
    assert place(source, target, links, element("b", source, "ate")) == "Ich <b>habe</b> gestern Pizza gegessen"
    both = element("a", source, "pizza yesterday", element("i", source, "yesterday"))
    assert place(source, target, links, both) == "Ich habe <a><i>gestern</i> Pizza</a> gegessen"


def test_an_element_around_everything_stays_so():
    source, target = "the dog sleeps .", "der Hund schläft ja gerade ."
    assert place(source, target, [(1, 1)], element("b", source, source)) == f"<b>{target}</b>"
    nested = element("b", source, source, element("i", source, source, element("u", source, source)))
    assert place(source, target, [(1, 1)], nested) == f"<b><i><u>{target}</u></i></b>"


def test_punctuation_stays_outside_unless_it_was_inside():
    source, target, links = "Today, I sleep", "Ich schlafe heute.", [(0, 2), (1, 0), (2, 1)]
    assert place(source, target, links, element("b", source, "Today")) == "Ich schlafe <b>heute</b>."
    assert place(source, target, links, element("b", source, "Today,")) == "Ich schlafe <b>heute.</b>"
    source, target = 'say "yes" now', "sag jetzt »ja«"
    assert place(source, target, [(0, 0), (1, 2), (2, 1)], element("q", source, "yes")) == "sag jetzt »<q>ja</q>«"


def test_a_part_of_a_word_stays_a_part_of_the_same_word():
    source, target = "H2SO4 burns", "Es brennt H2SO4"
    two, four = element("sub", source, "2"), element("sub", source, "4")
    expected = "Es brennt H<sub>2</sub>SO<sub>4</sub>"
    assert place(source, target, [(0, 2), (1, 1)], two, four) == expected
    # In a different word, the tag takes the whole word.
    assert place("unseen things", "nie Gesehenes", [(0, 1)], Element("<b>", "</b>", 0, 2)) == "nie <b>Gesehenes</b>"


def test_points_stay_beside_their_words():
    source, target, links = "see this picture now", "jetzt dieses Bild sehen", [(0, 3), (1, 1), (2, 2), (3, 0)]
    image = Point("<img>", len("see this"), before=True)  # attached to "picture"
    assert place(source, target, links, image) == "jetzt dieses <img>Bild sehen"
    image = Point("<img>", len("see this picture"), after=True)
    assert place(source, target, links, image) == "jetzt dieses Bild<img> sehen"
    image = Point("<img>", len("see this picture"), before=True, after=True)
    assert place(source, target, links, image) == "jetzt dieses Bild <img> sehen"
    assert place(source, target, links, Point("<img>", 0, after=True)) == f"<img> {target}"
    assert place(source, target, links, Point("<img>", len(source), before=True)) == f"{target} <img>"


def test_code_stands_before_the_punctuation_that_followed_it():
    point = Point("<code>ls</code>", len("Type"), before=True)
    assert place("Type, then wait", "Tippe, dann warte", [(0, 0)], point) == "Tippe <code>ls</code>, dann warte"


def test_without_links_tags_stand_in_proportion():
    source, target = "a b c d", "e f g h i j k l"
    assert place(source, target, [], element("b", source, "b")) == "e f <b>g h</b> i j k l"
    assert place(source, "e", [], element("b", source, "c")) == "<b>e</b>"
    assert place(source, "", [], element("b", source, "c")) == "<b></b>"


def test_text_is_never_markup():
    nodes = [element("b", "a b", "b")]
    assert place("a b", "<i> & </b>", [(1, 1)], *nodes) == "&lt;i&gt; <b>&amp;</b> &lt;/b&gt;"


def test_links_that_lead_nowhere_are_left_out():
    links = [(-1, 0), (0, -1), (9, 0), (0, 9)]
    assert place("a b", "c d", links, element("b", "a b", "a")) == "<b>c</b> d"


# ---- any markup, any links


@st.composite
def draw_nodes(draw, first, last, depth, counter):
    """Draw nodes between two characters of the source, in order."""
    nodes, at = [], first
    while at <= last and draw(st.booleans()):
        at = draw(st.integers(at, last))
        number = next(counter)
        if depth and at < last and draw(st.booleans()):
            end = draw(st.integers(at + 1, last))
            children = draw(draw_nodes(at, end, depth - 1, counter))
            nodes.append(Element(f"<e{number}>", f"</e{number}>", at, end, tuple(children)))
            at = end
        else:
            nodes.append(Point(f"<p{number}>", at, draw(st.booleans()), draw(st.booleans())))
    return nodes


@st.composite
def draw_case(draw):
    words = st.lists(st.text("ab.<&ß1", min_size=1, max_size=4), max_size=8)
    source, target = " ".join(draw(words)), " ".join(draw(words))
    links = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12))
    return source, target, links, draw(draw_nodes(0, len(source), 3, iter(range(10_000))))


def list_tags(nodes):
    for node in nodes:
        if isinstance(node, Point):
            yield node.raw
        else:
            yield from (node.start, *list_tags(node.children), node.end)


def check_nesting(text):
    """Check independently that every end tag closes the last open element."""
    stack = []
    for tag in TAGS.findall(text):
        if tag.startswith("</"):
            assert stack.pop() == tag[2:-1]
        elif tag.startswith("<e"):
            stack.append(tag[1:-1])
    assert not stack


def parents(text):
    """Return each tag's parent element."""
    stack, found = [""], {}
    for tag in TAGS.findall(text):
        if tag.startswith("</"):
            stack.pop()
        else:
            found[tag] = stack[-1]
            if tag.startswith("<e"):
                stack.append(tag)
    return found


@settings(max_examples=150, deadline=None)
@given(draw_case())
def test_the_same_tags_properly_nested_and_all_of_the_text(case):
    source, target, links, nodes = case
    result = place_tags(source, target, links, nodes)
    assert Counter(TAGS.findall(result)) == Counter(list_tags(nodes))
    check_nesting(result)
    assert "".join(html.unescape(TAGS.sub("", result)).split()) == "".join(target.split())
    # Words stay separate: spaces are only added, beside points.
    assert html.unescape(TAGS.sub("", result)).split() == target.split() or any("<p" in tag for tag in list_tags(nodes))
    expected = {}

    def note(nodes, parent):
        for node in nodes:
            expected[node.raw if isinstance(node, Point) else node.start] = parent
            if isinstance(node, Element):
                note(node.children, node.start)

    note(nodes, "")
    assert parents(result) == expected


@pytest.mark.parametrize("kind", ["elements", "points", "nested"])
def test_many_tags_take_little_time(kind):
    """Five thousand words with one tag each: no Python loop takes quadratic time."""
    count = 5_000
    words = [f"w{number}" for number in range(count)]
    source = " ".join(words)
    starts = [match.start() for match in re.finditer(r"\S+", source)]
    links = [(number, count - 1 - number) for number in range(count)]
    nodes = [
        Element("<b>", "</b>", start, start + len(word)) if kind == "elements" else Point("<img>", start)
        for start, word in zip(starts, words, strict=True)
    ]
    if kind == "nested":
        nodes = [Element("<i>", "</i>", 0, len(source), tuple(nodes))]
        for _ in range(50):
            nodes = [Element("<b>", "</b>", 0, len(source), tuple(nodes))]
    begun = time.process_time()
    result = place_tags(source, " ".join(reversed(words)), links, nodes)
    assert result.count("<") >= count
    assert time.process_time() - begun < 5
