"""Layers that are alike are folded into one with their number, and no others."""

from inspection.subjects import reads, stack
from torch import nn

from regard.inspection.collect.from_model import graph_of


def test_alike_layers_are_folded_with_their_number():
    model = stack(layers=5, decoder_layers=3)
    folded, whole = graph_of(model), graph_of(model, fold=False)
    layers = {group.members[0]: group.count for group in folded.groups if group.count > 1}
    assert layers == {"encoder.blocks.0": 5, "decoder.blocks.0": 3}
    assert all(group.count == 1 for group in whole.groups)
    count = sum(node.module.startswith("encoder.blocks.0") for node in whole.nodes)
    assert sum(node.module.startswith("encoder.blocks") for node in whole.nodes) == 5 * count
    assert sum(node.module.startswith("encoder.blocks") for node in folded.nodes) == count
    assert "encoder.blocks.0/dropout_add 2" in reads(folded, "encoder.final_norm")
    assert reads(whole, "encoder.final_norm") == ["encoder.blocks.4/dropout_add 2"]


def test_a_layer_that_differs_is_drawn_by_itself():
    model = stack(layers=4)
    model.encoder.blocks[1].feed = nn.Sequential(nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 8))
    counts = {group.members[0]: group.count for group in graph_of(model).groups if ".encoder" in f".{group.members[0]}"}
    assert counts["encoder.blocks.0"] == 1
    assert counts["encoder.blocks.1"] == 1
    assert counts["encoder.blocks.2"] == 2
