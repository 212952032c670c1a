"""Where boxes stand: encoder left, decoder right, from the bottom up; no edge crosses a box or a name."""

import pytest
from inspection.subjects import ALL, subject

from regard.inspection.collect.from_model import graph_of
from regard.inspection.draw.graph import box_size, frame_label_width
from regard.inspection.draw.graph_layout import lay_out


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
                # Where an edge goes aside it stays in a gap; otherwise it is upright, or level.
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
    boxes = {box.name: box for box in layout.boxes}
    rights = [box.x + box.width for name, box in boxes.items() if nodes[name].side == "encoder"]
    assert max(rights) < min(box.x for name, box in boxes.items() if nodes[name].side == "decoder")
    assert boxes["/softmax"].y == min(box.y for box in boxes.values())
    for edge in graph.edges:
        if nodes[edge.source].side == nodes[edge.target].side:
            assert boxes[edge.target].y + boxes[edge.target].height < boxes[edge.source].y
