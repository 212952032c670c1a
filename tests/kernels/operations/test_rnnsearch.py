"""RNNsearch's recurrence written out: equal to the plain loop, with every gradient."""

import pytest
import torch
from kernels.cases import draw_recurrence, recur_plainly
from oracles import agree

from regard.kernels import reference
from regard.kernels.operations import rnnsearch as cpu

GATES = pytest.mark.parametrize("gates", [3, 4])


@GATES
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1), (3, 4, 7, 5, 3, 6), (2, 6, 33, 17, 63, 34)])
@pytest.mark.parametrize("result", [0, 1, 2])
def test_equals_the_plain_loop(gates, sizes, result):
    inputs, lengths = draw_recurrence(gates, *sizes)
    agree(
        recur_plainly(cpu.recur, inputs, lengths)[result],
        recur_plainly(reference.recur, inputs, lengths)[result],
        inputs,
    )


@GATES
def test_all_results_together_have_the_gradients_of_the_plain_loop(gates):
    inputs, lengths = draw_recurrence(gates, 3, 5, 4, 3, 2, 6)
    both = [torch.cat([x.flatten() for x in recur_plainly(way.recur, inputs, lengths)]) for way in (cpu, reference)]
    agree(*both, inputs)


@GATES
@pytest.mark.parametrize("lengths", [[4, 2, 1], [4, 4, 4], [3, 0, 1]])
def test_gradients_are_those_of_small_differences(lengths, gates):
    inputs, lengths = draw_recurrence(gates, 3, 2, 4, 3, 5, 4, lengths)
    assert torch.autograd.gradcheck(lambda *x: recur_plainly(cpu.recur, x, lengths), inputs)
