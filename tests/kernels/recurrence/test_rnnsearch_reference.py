"""RNNsearch's plain loop against torch's own cells, step by step and sentence by sentence."""

import pytest
import torch
from kernels.recurrence.cases import draw, plain
from torch import nn

from regard.kernels.recurrence import reference


@pytest.mark.parametrize(("gates", "cell"), [(3, nn.GRUCell), (4, nn.LSTMCell)])
def test_every_step_is_the_papers(gates, cell):
    b, n, m, d, h, dv = 3, 4, 5, 3, 7, 2
    inputs, lengths = draw(gates, b, n, m, d, h, dv)
    projected, start, keys, values, query, vector, read, recurrent, bias = inputs
    states, contexts, weights = plain(reference.recur, inputs, lengths)
    one = cell(dv, d).double()
    with torch.no_grad():
        one.weight_ih.copy_(read)
        one.weight_hh.copy_(recurrent)
        one.bias_hh.copy_(bias)
        for row in range(b):
            state, length = start[row], int(lengths[row])
            for i in range(n):
                scores = [float(vector @ torch.tanh(query @ state[0] + key)) for key in keys[row, :length]]
                a = torch.tensor(scores, dtype=torch.float64).softmax(0) if length else torch.zeros(0)
                context = sum((x * value for x, value in zip(a, values[row], strict=False)), torch.zeros(dv))
                one.bias_ih.copy_(projected[row, i])
                given = state[0] if gates == 3 else (state[0], state[1])
                moved = one(context.double(), given)
                state = moved[None] if gates == 3 else torch.stack(moved)
                torch.testing.assert_close(states[row, i], state[0])
                torch.testing.assert_close(contexts[row, i], context.double())
                torch.testing.assert_close(weights[row, i, :length], a.double())
                assert not weights[row, i, length:].any()
