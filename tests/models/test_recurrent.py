"""Recurrence: whole sentences equal steps and both equal the formulas; behaviour that recurrent decoders share."""

import pytest
import torch
from models import formulas
from models.cases import model_of, pair
from oracles import agree
from torch import nn

from regard.attention import (
    Additive,
    Attention,
    Causal,
    Cosine,
    Dot,
    General,
    Hard,
    Lengths,
    Softmax,
    Sparsemax,
    use_backend,
)
from regard.models.contract import Memory
from regard.models.recurrent import (
    Bidirectional,
    Layer,
    Stack,
    attend_rows,
    can_bypass,
    is_standard,
    make_linear,
    make_readout,
    repeat_rows,
    reverse_rows,
    to_autocast_dtype,
    without_autocast,
)

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


def test_dropout_falls_between_layers_and_not_between_steps():
    """With everything dropped, the top layer sees no input and still continues from its own state."""
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


@pytest.mark.parametrize("rows", [1, 3])
def test_repeated_rows_are_a_tensor_of_their_own(rows):
    x = torch.randn(2, 3, requires_grad=True)
    copy = repeat_rows(x, rows)
    assert torch.equal(copy.view(2, rows, 3), x[:, None].expand(-1, rows, -1))
    assert not copy.requires_grad
    copy.zero_()
    assert x.detach().all()


def test_first_parameters():
    torch.manual_seed(0)
    layer, out = make_linear(30, 50), make_readout(400, 500, scale=3.0)
    bound = (6 / 80) ** 0.5
    assert layer.weight.abs().max() <= bound
    assert layer.weight.abs().max() > 0.95 * bound
    assert out.weight.std().item() == pytest.approx(3 / 20, rel=0.02)
    assert not layer.bias.any()
    assert not out.bias.any()
    assert make_linear(3, 4, bias=False).bias is None


class Loop(nn.Module):
    """A module whose methods return their arguments, and whether autocast is on."""

    @without_autocast("cpu")
    def on_cpu(self, *given):
        return *given, torch.is_autocast_enabled("cpu")

    @without_autocast("cuda")
    def on_cuda(self, *given):
        return *given, torch.is_autocast_enabled("cpu")


def test_a_recurrence_leaves_autocast_with_its_arguments_in_float32():
    x, attention = torch.randn(2, 3, 4, dtype=torch.bfloat16), Attention(Dot())
    memory = Memory(x, Lengths([3, 2]), {"start": x[:, 0]}, (1, 3))
    given = x, attention.prepare(x), memory, torch.tensor([3, 2]), None
    with torch.autocast("cpu", torch.bfloat16):
        found, keys, other, lengths, nothing, enabled = Loop().on_cpu(*given)
        assert Loop().on_cuda(*given) == (*given, True)
    assert Loop().on_cpu(*given) == (*given, False)
    assert {each.dtype for each in (found, keys.keys, keys.values, other.states, other.sentence["start"])} == {
        torch.float32
    }
    assert keys.owner is attention
    assert (other.span, other.grid) == (memory.span, (1, 3))
    assert lengths is given[3]
    assert (nothing, enabled) == (None, False)


def test_nothing_is_cast_without_autocast_on_a_gpu():
    x = torch.randn(3)
    assert to_autocast_dtype(x) is x
    with torch.autocast("cpu", torch.bfloat16):
        assert to_autocast_dtype(x) is x


def test_hooks_and_forced_backends_are_not_bypassed():
    attention, layer = Attention(Additive(3, 3, 4)), nn.Linear(2, 2)
    parts = nn.ModuleList([attention, layer])
    assert can_bypass(attention, layer)
    for register in (
        layer.register_forward_hook,
        layer.register_forward_pre_hook,
        attention.score.query.register_full_backward_hook,
    ):
        hook = register(lambda *_: None)
        assert not can_bypass(parts)
        hook.remove()
        assert can_bypass(parts)
    with use_backend("dense"):
        assert not can_bypass(parts)


@pytest.mark.parametrize(
    ("attention", "standard"),
    [
        (Attention(Additive(3, 3, 4)), True),
        (Attention(Dot()), True),
        (Attention(Dot(), weighting=Hard()), False),
        (Attention(Dot(scaled=True)), False),
        (Attention(Dot(), weighting=Softmax(temperature=2.0)), False),
        (Attention(Dot(), weighting=Sparsemax()), False),
        (Attention(Cosine(1.0)), False),
        (Attention(Dot(), span=Causal()), False),
        (Attention(Dot(), dropout=0.1), False),
        (type("Own", (Attention,), {})(Dot()), False),
        (Attention(type("Mine", (Dot,), {})()), False),
    ],
)
def test_attentions_with_other_parts_are_called_themselves(attention, standard):
    assert is_standard(attention, (Additive, Dot, General)) == standard
    assert can_bypass(attention) == standard


def test_code_that_knows_one_score_and_one_weighting_serves_no_other():
    assert can_bypass(Attention(Dot(), weighting=Hard()), weightings=(Hard,))
    assert not can_bypass(Attention(Dot()), weightings=(Hard,))
    assert not can_bypass(Attention(Dot()), scores=(Additive,))
    assert not can_bypass(Attention(Additive(3, 3, 4)), scores=(Dot, General))


@torch.no_grad()
def test_rows_of_a_sentence_attend_in_one_call_and_cover():
    model, (source, _) = model_of("rnnsearch"), pair()
    state = model.start(model.encode(source), rows=2, size=4, coverage=True)
    query, keys = torch.randn(6, 5, dtype=torch.float64), state.sentence["memory"]
    context = attend_rows(model.attention, query, state)
    for row in range(6):
        look = model.attention.look(query[row, None, None].expand(3, 1, -1), keys)
        torch.testing.assert_close(context[row], look.context[row // 2, 0])
        torch.testing.assert_close(state.coverage[row], look.weights[row // 2, 0])
