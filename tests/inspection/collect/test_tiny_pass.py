"""The pass that a graph is made of: tiny, its sizes to be told from all others, or over what is given."""

import torch
from inspection.graphs import stack

from regard.inspection.collect import tiny_pass
from regard.inspection.collect.from_model import graph_of
from regard.models import Tokens


def test_sizes_of_the_pass_are_those_of_no_parameter():
    model = stack(size=14, hidden=11)
    sizes = tiny_pass.run_tiny(model).sizes
    taken = {size for parameter in model.parameters() for size in parameter.shape}
    assert set(sizes) == {"b", "m", "n"}
    assert not taken & set(sizes.values())


def test_given_inputs_are_what_is_traced():
    source = Tokens.of(torch.ones(2, 9).long(), torch.tensor([9, 4]))
    target = Tokens.of(torch.ones(2, 3).long(), torch.tensor([3, 3]))
    graph = graph_of(stack(), source, target)
    assert graph.node("input source").shape == (2, 9)
    assert graph.node("decoder.blocks.0.cross.attention/score").shape == (2, 2, 3, 9)
