"""Launches of a recurrent step: a program for each row, direction and block of the state."""

import pytest
import torch

pytest.importorskip("triton")
from regard.kernels.recurrence import cells_triton as triton


@pytest.mark.parametrize("d", [1, 33, 512, 513, 2000])
def test_every_number_of_a_state_has_a_program(d):
    (rows, blocks, ways), options = triton.grid(2, 5, d)
    assert (rows, ways) == (5, 2)
    assert options["BLOCK"] * (blocks - 1) < d <= options["BLOCK"] * blocks
    assert options["num_warps"] in (1, 2)


def test_strides():
    x = torch.zeros(2, 3, 4, 5)
    assert triton.strides_of(x) == (60, 20, 5)
    assert triton.strides_of(None) == (0, 0, 0)
    assert triton.ways(x[0]) == (20, 5)
    with pytest.raises(AssertionError):
        triton.ways(x[0].mT)
