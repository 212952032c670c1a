"""A trace has what was called and nothing else, and leaves the model as it was."""

import torch
from inspection.graphs import reads, stack
from inspection.subjects import subject
from torch import nn

from regard.inspection.collect.from_model import graph_of
from regard.inspection.collect.trace import trace


def test_the_same_model_gives_the_same_graph_and_stays_as_it_was():
    model = subject("luong").model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert graph_of(model) == graph_of(model)
    assert model.training
    model.eval()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for module in model.modules():
        assert not module._forward_hooks
        assert "attend_projected" not in vars(module)


def test_what_is_not_called_is_not_there():
    model = stack(layers=3, norm="post")
    del model.encoder.blocks[1]
    model.encoder.blocks[0].feed = nn.Identity()
    names = {node.name for node in graph_of(model, fold=False).nodes}
    assert not any(name.startswith("encoder.blocks.2") for name in names)
    assert not any("encoder.blocks.0.feed." in name for name in names)
    assert "encoder.blocks.1.feed.0" in names


def test_a_module_that_is_called_by_another_method_is_named_by_its_own_name():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Linear(3, 3)

        def double(self, x):
            return 2 * self.matrix(x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.unused, self.bias = Twice(), nn.Linear(3, 3), nn.Parameter(torch.ones(3))

        def run(self, x):
            return torch.tanh(self.inner.double(x) + self.bias) + x

    model, x = Outer(), torch.randn(2, 3)
    with trace(model) as recorder:
        recorder.add_input("x", x, "x")
        model.run(x)
    units = {(unit.module, unit.operation): unit for unit in recorder.units.values()}
    expected = {("", "x"), ("inner.matrix", "Linear"), ("inner", "mul"), ("", "bias"), ("", "add"), ("", "tanh")}
    assert set(units) == expected
    names = {unit.id: (unit.module, unit.operation) for unit in recorder.units.values()}
    assert {names[each] for each in units["", "tanh"].reads[0]} == {("", "add")}
    assert {names[each] for each in units["inner", "mul"].reads[0]} == {("inner.matrix", "Linear")}
    assert len([unit for unit in recorder.units.values() if unit.operation == "add"]) == 2


def test_a_function_gives_what_it_wrote_and_not_what_it_wrote_with():
    """The cell's step writes h and c side by side, and at first with nothing before it: all of it is the function's."""
    graph = graph_of(subject("lstmn-plain").model)
    for side in ("encoder", "decoder"):
        step = f"{side}.layers.0/step_lstm"
        assert graph.node(step).shape == (graph.sizes["b"], 2 * 6)
        assert reads(graph, step) == [f"{step}, step before", f"{side}.layers.0.cell"]
    assert reads(graph, "attention.score.query") == ["decoder.layers.0/step_lstm"]
    machine = graph_of(subject("ntm").model)
    assert machine.node("heads/shift_weights").shape == (machine.sizes["b"], 4, 7)
