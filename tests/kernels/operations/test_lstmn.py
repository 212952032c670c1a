"""The LSTMN's recurrences written out: equal to the plain loops, with every gradient."""

import pytest
import torch
from oracles import agree

from regard.kernels import reference
from regard.kernels.operations import lstmn as cpu
from regard.kernels.operations.lstmn import ScoreWeights

SIZES = pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (4, 3, 5, 7), (19, 2, 3, 33)])  # steps, sentences, d, h


def normal(*shape):
    return (torch.randn(*shape, dtype=torch.float64) / 2).requires_grad_()


@SIZES
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("attends", [False, True])
def test_tapes_are_those_of_the_plain_loop(sizes, attends, adds):
    n, b, d, h = sizes
    projected, recurrent, added = normal(n, b, 4 * d), normal(4 * d, d), normal(n, b, d)
    words, parts = normal(n, b, h), [normal(h, d), normal(h, d), normal(h), normal(h)]
    given = [projected, recurrent, added if adds else None]
    if attends:
        given += [words, ScoreWeights(*parts)]
    leaves = [projected, recurrent, *([added] if adds else []), *([words, *parts] if attends and n > 1 else [])]
    agree(cpu.run_tapes(*given), reference.run_tapes(*given), leaves)


@SIZES
def test_a_source_is_read_as_by_the_plain_loop(sizes):
    n, b, d, h = sizes
    m = 2 * n + 1
    exists = torch.arange(m) < torch.randint(0, m + 1, (b, 1))
    exists[0] = True
    words, keys, values = normal(n, b, h), normal(b, m, h), normal(b, m, 2 * d)
    leaves = [words, keys, values, *([summary := normal(h, d)] if n > 1 else []), vector := normal(h)]
    given = words, keys, values, exists, summary if n > 1 else normal(h, d), vector
    agree(cpu.read_source(*given), reference.read_source(*given), leaves)


@pytest.mark.parametrize("lengths", [[0, 0], [3, 3], [5, 0], [40, 17]])
@torch.no_grad()
def test_a_step_reads_what_the_plain_loop_reads(lengths):
    length, h, d = torch.tensor(lengths), 7, 3
    keys, values = normal(2, 41, h), normal(2, 41, 2 * d)
    query, vector, known = normal(2, h), normal(h), (min(lengths), max(lengths))
    found = cpu.read_tapes(query, keys, values, length, vector, known)
    torch.testing.assert_close(found, reference.read_tapes(query, keys, values, length, vector))


def test_gradients_are_those_of_small_differences():
    n, b, d, h = 4, 2, 2, 3
    inputs = [normal(n, b, 4 * d), normal(4 * d, d), normal(n, b, d), normal(n, b, h)]
    parts = [normal(h, d), normal(h, d), normal(h), normal(h)]
    assert torch.autograd.gradcheck(lambda *x: cpu.run_tapes(*x[:4], ScoreWeights(*x[4:])), [*inputs, *parts])
    exists = torch.tensor([[True, True, False], [False, False, False]])
    source = [normal(n, b, h), normal(b, 3, h), normal(b, 3, 2 * d), normal(h, d), normal(h)]
    assert torch.autograd.gradcheck(lambda *x: cpu.read_source(*x[:3], exists, *x[3:]), source)
