"""Graph layout: encoder left, decoder right, from the bottom up; no edge crosses a box or a name."""

import random

import pytest
from inspection.subjects import ALL, subject

from regard.inspection.collect.graph import graph_of
from regard.inspection.draw.graph import box_size, frame_label_width
from regard.inspection.draw.graph_layout import LANE, NEAR, Item, Link, Rows, lay_out, spread


def test_places_are_in_order_and_apart_and_where_wished_if_there_is_room():
    draw = random.Random(5)
    for _ in range(50):
        row = [Item(str(number), draw.uniform(5, 90), 10.0) for number in range(7)]
        wishes = [draw.uniform(0, 400) for _ in row]
        places = spread(row, wishes, [1.0] * 7)
        for left, right, item in zip(places, places[1:], row, strict=False):
            assert right - left >= item.width + NEAR - 1e-6
        roomy = [1000.0 * number for number in range(7)]
        assert spread(row, roomy, [1.0] * 7) == roomy


def test_edges_that_need_not_cross_do_not():
    below = [Item(f"a{number}", 30.0, 10.0, rank=0) for number in range(5)]
    above = [Item(f"b{number}", 30.0, 10.0, rank=1) for number in range(5)]
    links = [Link(low.key, low, high) for low, high in zip(below, reversed(above), strict=True)]
    rows = Rows([*below, *above], links, lambda item: False)
    rows.place()
    assert rows.crossings(rows.rows) == 0
    for low, high in zip(below, reversed(above), strict=True):
        assert abs(low.x - high.x) < LANE


def test_what_keeps_left_stands_first():
    items = [Item(name, 10.0, 10.0, rank=0) for name in "abc"]
    rows = Rows(items, [], lambda item: item.key == "c")
    assert [item.key for item in rows.rows[0]] == ["c", "a", "b"]


@pytest.mark.parametrize("name", ALL)
def test_edges_cross_no_box_and_no_name_of_a_frame(name):
    graph = graph_of(subject(name).model)
    nodes = {node.name: node for node in graph.nodes}
    layout = lay_out(graph, lambda each: box_size(nodes[each], graph), frame_label_width)
    solid = [(box.x + 1, box.y + 1, box.width - 2, box.height - 2) for box in layout.boxes]
    solid += [(each.label_x, each.y + 6, frame_label_width(each.group), 12) for each in layout.frames]
    arrows = 0
    for curve in layout.curves:
        arrows += curve.arrow
        for (x1, y1), (x2, y2) in zip(curve.points, curve.points[1:], strict=False):
            for x, y, width, height in solid:
                # An edge that moves sideways stays in a gap; otherwise it is vertical or horizontal.
                left, right, top, bottom = min(x1, x2), max(x1, x2), min(y1, y2), max(y1, y2)
                crossed = left < x + width and x < right and top < y + height and y < bottom
                upright = left == right and x < left < x + width and top < y + height and y < bottom
                assert not crossed, (curve, x, y)
                assert not upright, (curve, x, y)
    read = {edge.target for edge in graph.edges}
    assert arrows >= len(read)


def test_the_encoder_stands_at_the_left_and_words_come_out_at_the_top():
    graph = graph_of(subject("transformer").model)
    nodes = {node.name: node for node in graph.nodes}
    layout = lay_out(graph, lambda each: box_size(nodes[each], graph), frame_label_width)
    boxes = {box.key: box for box in layout.boxes}
    rights = [box.x + box.width for name, box in boxes.items() if nodes[name].side == "encoder"]
    assert max(rights) < min(box.x for name, box in boxes.items() if nodes[name].side == "decoder")
    assert boxes["/softmax"].y == min(box.y for box in boxes.values())
    for edge in graph.edges:
        if nodes[edge.source].side == nodes[edge.target].side:
            assert boxes[edge.target].y + boxes[edge.target].height < boxes[edge.source].y
