"""A loop over layers is no loop over steps: each turn is a box of its own."""

import pytest
from inspection.graphs import make, reads

from regard.inspection.collect.from_model import graph_of

CONCATENATE = "encoder/cat"


@pytest.mark.parametrize("kind", ["luong", "rnnsearch"])
def test_every_layer_of_a_bidirectional_encoder_joins_its_own(kind):
    graph = graph_of(make(kind, embedding=4, layers=3, bidirectional=True))
    assert not [node for node in graph.nodes if node.kind == "previous" and node.side == "encoder"]
    for layer in range(3):
        ends = {f"encoder.{way}.{layer}" for way in ("forwards", "backwards")}
        joined = [node.name for node in graph.nodes if set(reads(graph, node.name)) == ends]
        annotation = next(name for name in joined if graph.node(name).shape[1] == graph.sizes["m"])
        if layer < 2:
            assert all(reads(graph, f"encoder.{way}.{layer + 1}") == [annotation] for way in ("forwards", "backwards"))
            assert f"^{{({layer + 1})}}" in graph.node(annotation).symbol
        else:
            assert annotation in reads(graph, "attention/sum")
            assert "^" not in graph.node(annotation).symbol


def test_each_layer_of_the_decoder_starts_from_both_ends_of_its_own():
    graph = graph_of(make("luong", embedding=4, layers=2, bidirectional=True))
    for layer in range(2):
        starts = [name for name in reads(graph, f"decoder.layers.{layer}") if name.startswith(CONCATENATE)]
        assert [set(reads(graph, each)) for each in starts] == [
            {f"encoder.forwards.{layer}", f"encoder.backwards.{layer}"}
        ]


def test_a_loop_over_steps_is_one_box():
    graph = graph_of(make("luong", embedding=4, layers=2))
    assert [node.calls for node in graph.nodes if node.name.startswith("/cat")] == [graph.sizes["n"]]
