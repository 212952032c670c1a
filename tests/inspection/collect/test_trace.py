"""A trace contains exactly what was called, and leaves the model unchanged."""

import math

import pytest
import torch
from inspection.subjects import reads, stack, subject
from torch import nn

from regard.inspection.collect.graph import graph_of
from regard.inspection.collect.trace import (
    ELEMENTWISE,
    STRUCTURAL,
    Output,
    Parameter,
    Unit,
    is_in_place,
    scalar_in,
    storage_of,
    tensors_in,
    trace,
)


def test_a_unit_ran_as_often_as_it_read():
    unit = Unit("a", "module", "encoder.layers.0", "Layer", "encoder", 3)
    assert unit.calls == 0
    unit.reads += [{Output("x", 1)}, {Output("x", 2), Output("y", 1)}]
    assert unit.calls == 2


def test_origins_are_told_apart():
    assert Output("a", 0) != Output("a", 1)
    assert Parameter("encoder", "weight") != Output("encoder", 0)


@pytest.mark.parametrize(
    "name", ["transpose", "reshape", "unsqueeze", "flip", "roll", "clone", "contiguous", "flatten"]
)
def test_what_moves_numbers_about_makes_none(name):
    given = {"transpose": (0, 1), "reshape": (6,), "unsqueeze": (0,), "flip": ((0,),), "roll": (1,)}.get(name, ())
    x = torch.randn(2, 3)
    moved = getattr(x, name)(*given)
    assert name in STRUCTURAL
    assert sorted(moved.flatten().tolist()) == sorted(x.flatten().tolist())


def test_what_computes_is_shown():
    assert STRUCTURAL.isdisjoint(("matmul", "softmax", "tanh", "linear", "relu", "layer_norm", *ELEMENTWISE))


def test_numbers_are_named():
    assert scalar_in([(torch.ones(1), math.sqrt(512))]) == "√512"
    assert scalar_in([(torch.ones(1), 0.25)]) == "0.25"
    assert scalar_in([(torch.ones(1), 1)]) is None
    assert scalar_in([(torch.ones(1), True)]) is None


def test_what_is_written_in_place_is_known_by_its_name_or_by_its_option():
    assert is_in_place("add_", {})
    assert is_in_place("__setitem__", {})
    assert is_in_place("mul", {"out": torch.ones(1)})
    assert not is_in_place("__add__", {})
    assert not is_in_place("mul", {})


def test_a_view_belongs_to_the_tensor_that_it_is_of():
    whole = torch.zeros(3, 4)
    assert storage_of(whole[:, 1:]) == storage_of(whole) != storage_of(whole.clone())
    assert [each.shape for each in tensors_in(({"a": whole}, [whole[0]], 3))] == [(3, 4), (4,)]


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
    assert {names[each] for each in units["", "tanh"].units_read} == {("", "add")}
    assert {names[each] for each in units["inner", "mul"].units_read} == {("inner.matrix", "Linear")}
    assert len([unit for unit in recorder.units.values() if unit.operation == "add"]) == 2


def test_a_function_gives_what_it_wrote_and_not_what_it_wrote_with():
    """The cell's step writes h and c side by side; the whole tensor belongs to the function, also at the first step."""
    graph = graph_of(subject("lstmn-plain").model)
    for side in ("encoder", "decoder"):
        step = f"{side}.layers.0/step_lstm"
        assert graph.node(step).shape == (graph.sizes["b"], 2 * 6)
        assert reads(graph, step) == [f"{step}, step before", f"{side}.layers.0.cell"]
    assert reads(graph, "attention.score.query") == ["decoder.layers.0/step_lstm"]
    machine = graph_of(subject("ntm").model)
    assert machine.node("heads/shift_weights").shape == (machine.sizes["b"], 4, 7)
