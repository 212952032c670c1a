"""Cells and stacks: whole sentences equal steps, and both equal the formulas."""

import pytest
import torch
from models import formulas
from oracles import agree

from regard.models.layers.cells import Bidirectional, Layer, Stack, last_states, reverse_rows

KINDS = [("rnn", "tanh"), ("rnn", "relu"), ("gru", "tanh"), ("lstm", "tanh")]


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def scrambled(module):
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
    return module


@pytest.mark.parametrize(("kind", "nonlinearity"), KINDS)
@pytest.mark.parametrize("lengths", [None, [7, 1, 4], [0, 7, 3]])
def test_a_layer_equals_its_formula(kind, nonlinearity, lengths):
    layer = scrambled(Layer(kind, 3, 5, nonlinearity))
    x, start = normal(3, 7, 3), normal(3, layer.parts, 5)
    given = None if lengths is None else torch.tensor(lengths)
    states, end = layer(x, start, given)
    leaves = [x, start, *layer.parameters()]
    wanted, ends = [], []
    for row, length in enumerate(lengths or [7, 7, 7]):
        each, final = formulas.read(layer, list(x[row, :length]), list(start[row]))
        wanted += each
        ends.append(torch.stack(final))
    real = torch.arange(7) < torch.tensor(lengths or [7, 7, 7])[:, None]
    agree(states[real], torch.stack(wanted), leaves)
    agree(end, torch.stack(ends), leaves)


@pytest.mark.parametrize(("kind", "nonlinearity"), KINDS)
def test_a_stack_equals_its_steps(kind, nonlinearity):
    stack = scrambled(Stack(kind, 3, 5, 2, nonlinearity=nonlinearity))
    x, start = normal(2, 6, 3), normal(2, 2, stack.each[0].parts, 5)
    top, end = stack(x, start)
    state, tops = start, []
    for word in stack.each[0].project(x).unbind(1):
        one, state = stack.step(word, state)
        tops.append(one)
    leaves = [x, start, *stack.parameters()]
    agree(torch.stack(tops, 1), top, leaves)
    agree(state, end, leaves)


@pytest.mark.parametrize(("kind", "nonlinearity"), KINDS)
def test_some_columns_of_an_input_are_projected_alone(kind, nonlinearity):
    layer, x = scrambled(Layer(kind, 7, 5, nonlinearity)), normal(4, 7)
    parts = layer.project(x[:, :3]) + layer.project(x[:, 3:], 3, bias=False)
    agree(parts, layer.project(x))


def test_both_directions_keep_to_the_lengths():
    both = scrambled(Bidirectional("gru", 3, 5, layers=2))
    x, lengths = normal(3, 6, 3), torch.tensor([6, 1, 4])
    other = torch.where((torch.arange(6) < lengths[:, None])[..., None], x, torch.full_like(x, 1e6))
    for row, length in enumerate(lengths.tolist()):
        alone = both(x[row : row + 1, :length], torch.tensor([length]))
        agree(both(other, lengths)[row, :length], alone[0], both.parameters())


def test_a_turn_is_its_own_inverse_and_leaves_padding():
    x, lengths = normal(4, 5, 3), torch.tensor([5, 0, 1, 3])
    turned = reverse_rows(x, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(turned[row], torch.cat([x[row, :length].flip(0), x[row, length:]]))
    assert torch.equal(reverse_rows(turned, lengths), x)
    assert torch.equal(reverse_rows(x[..., 0].detach(), lengths), turned[..., 0])
    assert torch.autograd.gradcheck(lambda y: reverse_rows(y, lengths), [x])
    assert torch.autograd.gradgradcheck(lambda y: reverse_rows(y, lengths), [x])


def test_the_last_of_nothing_is_what_it_started_from():
    x, empty = normal(2, 3, 4), normal(2, 4)
    got = last_states(x, torch.tensor([0, 2]), empty)
    assert torch.equal(got, torch.stack([empty[0], x[1, 1]]))


def test_dropout_falls_between_layers_and_not_between_steps():
    """With everything dropped the top layer sees nothing of the input, and goes on from its own state all the same."""
    stack = scrambled(Stack("gru", 3, 5, 2, dropout=0.5)).train()
    stack.dropout.p = 1.0
    top, _ = stack(normal(2, 4, 3))
    states, _ = formulas.read(stack.each[1], [torch.zeros(5, dtype=torch.float64)] * 4)
    agree(top[0], torch.stack(states))


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_recurrent_matrices_start_orthogonal(kind):
    layer = Layer(kind, 3, 8)
    for gate in layer.net.weight_hh_l0.chunk(layer.gates):
        agree(gate @ gate.T, torch.eye(8), rtol=1e-5, atol=1e-5)
    forget = layer.net.bias_ih_l0.view(layer.gates, 8)
    assert forget.sum() == (8 if kind == "lstm" else 0)
    if kind == "lstm":
        assert (forget[1] == 1).all()
