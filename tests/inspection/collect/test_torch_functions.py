"""What a graph leaves out: functions that move numbers about; and the numbers that others multiply by."""

import math

import pytest
import torch

from regard.inspection.collect.torch_functions import ELEMENTWISE, is_structural, scalar_in


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
