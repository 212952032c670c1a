"""What a graph leaves out: functions that move numbers about; and the numbers that others multiply by."""

import math

import pytest
import torch

from regard.inspection.collect.trace import (
    ELEMENTWISE,
    is_in_place,
    is_structural,
    scalar_in,
    shape_of_whole,
    storage_of,
    tensors_in,
)


@pytest.mark.parametrize(
    "name", ["transpose", "reshape", "unsqueeze", "flip", "roll", "clone", "contiguous", "flatten"]
)
def test_what_moves_numbers_about_makes_none(name):
    given = {"transpose": (0, 1), "reshape": (6,), "unsqueeze": (0,), "flip": ((0,),), "roll": (1,)}.get(name, ())
    x = torch.randn(2, 3)
    moved = getattr(x, name)(*given)
    assert is_structural(name)
    assert sorted(moved.flatten().tolist()) == sorted(x.flatten().tolist())


def test_what_computes_is_shown():
    assert not any(map(is_structural, ("matmul", "softmax", "tanh", "linear", "relu", "layer_norm", *ELEMENTWISE)))


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
    assert shape_of_whole(whole[:, 1:]) == shape_of_whole(whole) == (3, 4)
    assert storage_of(whole[:, 1:]) == storage_of(whole) != storage_of(whole.clone())
    assert [each.shape for each in tensors_in(({"a": whole}, [whole[0]], 3))] == [(3, 4), (4,)]
