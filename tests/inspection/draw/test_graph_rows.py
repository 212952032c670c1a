"""Places in a row: in order, apart, and as near as can be to what is wished."""

import random

from regard.inspection.draw.graph_layout import LANE, NEAR, Item, Link, Rows, spread


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
