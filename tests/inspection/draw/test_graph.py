"""The picture of a graph is well-formed: everything is inside, no boxes overlap, words stay inside their boxes."""

import re
from functools import cache
from itertools import combinations
from xml.etree import ElementTree

import pytest
from inspection.subjects import ALL, subject

from regard import inspection
from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import Graph, GraphEdge, GraphNode
from regard.inspection.collect.graph import graph_of
from regard.inspection.draw.graph import draw_graph, marked_up, plain_text, text_width

SVG = "{http://www.w3.org/2000/svg}"


@cache
def graph_of_subject(name) -> Graph:
    return graph_of(subject(name).model)


@cache
def read_svg(name):
    return ElementTree.fromstring(draw_graph(graph_of_subject(name)))


def rectangles(root, kind):
    found = [each for each in root.iter(f"{SVG}rect") if each.get("class", "").split()[0] == kind]
    return [tuple(float(each.get(key)) for key in ("x", "y", "width", "height")) for each in found]


def overlap(one, other):
    (x1, y1, w1, h1), (x2, y2, w2, h2) = one, other
    return x1 < x2 + w2 and x2 < x1 + w1 and y1 < y2 + h2 and y2 < y1 + h1


def inside(one, other):
    (x1, y1, w1, h1), (x2, y2, w2, h2) = one, other
    return x2 <= x1 and y2 <= y1 and x1 + w1 <= x2 + w2 and y1 + h1 <= y2 + h2


@pytest.mark.parametrize("name", ALL)
def test_every_box_is_drawn_once_and_none_on_another(name):
    root, graph = read_svg(name), graph_of_subject(name)
    width, height = map(float, root.get("viewBox").split()[2:])
    boxes, frames = rectangles(root, "graph-box"), rectangles(root, "graph-frame")
    assert len(boxes) == len(graph.nodes)
    assert len(frames) == len(graph.groups)
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]
    for frame in frames:
        assert inside(frame, (0, 0, width, height))
        assert all(inside(box, frame) or not overlap(box, frame) for box in boxes)
        assert all(inside(a, frame) or inside(frame, a) or not overlap(a, frame) for a in frames)
    assert all(inside(box, (0, 0, width, height)) for box in boxes)
    assert width < 1900


@pytest.mark.parametrize("name", ALL)
def test_words_fit_into_their_boxes(name):
    for group in read_svg(name).iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        left, right = float(box.get("x")), float(box.get("x")) + float(box.get("width"))
        top, bottom = float(box.get("y")), float(box.get("y")) + float(box.get("height"))
        for text in group.findall(f"{SVG}text"):
            words = "".join(text.itertext()).replace("\u200b", "")
            size = 11 if text.get("class") == "graph-small" else 13
            half = text_width(words, size) / 2
            assert left <= float(text.get("x")) - half
            assert float(text.get("x")) + half <= right
            assert top + 9 <= float(text.get("y")) <= bottom - 3


def test_it_says_what_it_shows():
    root = read_svg("transformer")
    words = " ".join("".join(root.itertext()).split())
    assert root.find(f"{SVG}title").text == "Computational graph: transformer · Vaswani 2017"
    assert "embedding" in root.find(f"{SVG}desc").text
    assert "encoder.blocks.0 stands for 2 alike layers" in root.find(f"{SVG}desc").text
    shown = ("× 2", "÷ √4", "−∞ where it is forbidden", "what comes later", "self-attention, 2 heads", "[b, 2, n, m]")
    assert [each for each in shown if each not in words] == []
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "graph-title graph-description"


def test_letters_stand_for_sizes_of_the_pass_and_for_no_others():
    sizes = {"b": 5, "m": 7}
    node = GraphNode("a", "module", "linear", "", (5, 7, 7), "encoder", "a")
    last = GraphNode("b/score", "stage", "score", "", (5, 5, 7), "encoder", "b", pairs=True)
    text = draw_graph(Graph("own", "", (node, last), (GraphEdge("a", "b/score"),), (), sizes))
    assert "[b, m, 7]" in text
    assert "[b, b, m]" in text


def test_what_the_source_makes_as_long_as_it_is_has_letters_and_no_numbers():
    words = ["".join(text.itertext()) for text in read_svg("pointer").iter(f"{SVG}text")]
    assert sum("[b, n, m + 1]" in each for each in words) == 4
    assert not [each for each in words if "12]" in each]


def test_what_grows_from_step_to_step_is_said_to():
    words = "".join(read_svg("lstmn").itertext())
    assert words.count("[b, 1, t − 1]") == 2 * 2 * 2
    assert words.count("[b, t − 1, 12]") == 2 * 2
    assert "t steps so far, this one too" in words
    assert "t steps" not in "".join(read_svg("luong").itertext())


def text_boxes(root):
    """Return each text with its estimated rectangle; the height includes descenders and subscripts."""
    found = []
    for text in root.iter(f"{SVG}text"):
        words = "".join(text.itertext()).replace("\u200b", "")
        sizes = {"graph-small": 11, "graph-legend": 11, "graph-name": 11.5, "graph-heading": 16}
        size = sizes.get(text.get("class"), 13)
        width, x, y = text_width(words, size), float(text.get("x")), float(text.get("y"))
        left = x - width / 2 if text.get("text-anchor") == "middle" else x
        marked = any(each.get("dy") for each in text.iter(f"{SVG}tspan"))
        found.append((words, (left, y - 0.85 * size, width, (0.85 + 0.2) * size + (3.5 if marked else 0))))
    return found


@pytest.mark.parametrize("name", ALL)
def test_no_two_texts_overlap(name):
    root = read_svg(name)
    width, height = map(float, root.get("viewBox").split()[2:])
    texts = text_boxes(root)
    assert len(texts) > len(graph_of_subject(name).nodes)
    assert not [(a, b) for (a, one), (b, other) in combinations(texts, 2) if overlap(one, other)]
    assert all(inside(box, (0, 0, width, height)) for _, box in texts)


def test_words_of_a_person_are_words_in_the_picture():
    name = "<b>&\"'"
    text = draw_graph(Graph(name, "", (GraphNode(name, "module", name, name, (), "encoder", name),), ()))
    root = ElementTree.fromstring(text)
    assert root.find(f"{SVG}title").text == f"Computational graph: {name}"


def test_indices_are_moved_and_moved_back():
    assert plain_text("h_{i−1}^⊤ W_a") == "hi−1⊤ Wa"
    shifts = [float(each) for each in re.findall(r'dy="([-0-9.]+)"', marked_up("h_{i−1}^⊤ W_a"))]
    assert sum(shifts) == 0
    assert marked_up("a < b") == "a &lt; b"


def test_a_picture_saves_itself_and_shows_itself(tmp_path):
    made = inspection.model_graph(subject("rnn").model)
    assert made._repr_svg_() == made.svg == draw_graph(made.graph)
    path = made.save(tmp_path / "new" / "graph.svg")
    ElementTree.parse(path)
    assert path.read_text().startswith("<?xml")
    assert repr(made).startswith("ModelGraph(rnn, ")
    with pytest.raises(ArgumentError, match=r"saved as \.svg, got 'graph\.png'"):
        made.save(tmp_path / "graph.png")


def test_all_layers_are_drawn_where_none_is_folded():
    whole = inspection.model_graph(subject("transformer").model, fold=False)
    assert "encoder.blocks.1" in whole.svg
    assert "encoder.blocks.1" not in inspection.model_graph(subject("transformer").model).svg
