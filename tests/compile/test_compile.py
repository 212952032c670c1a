"""torch.compile(fullgraph=True) on Heads and on Attention with every soft score, forward and backward.

These tests run in a process of their own, without the shape-checking hook, which breaks graphs.
"""

import pytest
import torch
from attention.cases import SCORES, draw_inputs, normal, scrambled
from oracles import agree
from torch import nn

from regard.attention import (
    Alibi,
    Attention,
    Causal,
    Decoder,
    Encoder,
    Heads,
    Lengths,
    Mask,
    Monotonic,
    Packed,
    Predictive,
    call_records,
    watch,
)

pytestmark = pytest.mark.compile


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Looking(nn.Module):
    """An attention that builds its span inside the graph, as a model does."""

    def __init__(self, attention, span=None):
        super().__init__()
        self.attention = attention
        self.span = span

    def forward(self, *inputs, lengths=None):
        span = self.span
        if lengths is not None:
            span = Lengths(lengths) if span is None else Lengths(lengths) & span
        return self.attention(*inputs, span=span)


def same(module, *inputs, backend="aot_eager", rtol=1e-9, **named):
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    expected = module(*inputs, **named)
    agree(compiled(*inputs, **named), expected, [*inputs, *module.parameters()], rtol=rtol, atol=1e-10)


SPANS = {
    "none": lambda: None,
    "causal": Causal,
    "causal-start": lambda: Causal(2),
    "monotonic": lambda: Monotonic(2),
    "mask": lambda: Mask(torch.ones(5, 5, dtype=torch.bool).tril()),
}


@pytest.mark.parametrize("lengths", [None, torch.tensor([3, 5])])
@pytest.mark.parametrize("name", SPANS)
def test_heads_in_self_attention(name, lengths):
    same(Looking(scrambled(Heads(6, heads=2)), SPANS[name]()), normal(2, 5, 6), lengths=lengths)


@pytest.mark.parametrize("lengths", [None, torch.tensor([0, 7])])
def test_heads_across(lengths):
    same(Looking(scrambled(Heads(6, heads=2))), normal(2, 3, 6), normal(2, 7, 6), lengths=lengths)


@pytest.mark.parametrize("options", [{"split": "input"}, {"query_size": 8, "value_size": 4}, {"bias": False}])
def test_heads_of_every_make(options):
    same(Looking(scrambled(Heads(6, heads=2, **options)), Causal()), normal(2, 5, 6))


def test_heads_with_alibi():
    same(Looking(scrambled(Heads(6, heads=2)), Alibi(2) & Causal()), normal(2, 5, 6))


@pytest.mark.parametrize("lengths", [None, torch.tensor([3, 7])])
@pytest.mark.parametrize("name", SCORES)
def test_attention_with_every_score(name, lengths):
    case = SCORES[name](7)
    same(Looking(Attention(case.score).double()), *draw_inputs(case, (2,), 4, 7), lengths=lengths)


@pytest.mark.parametrize("name", ["general", "additive"])
@pytest.mark.parametrize("span", [Monotonic(2), None])
def test_attention_with_a_window(name, span):
    case = SCORES[name](7)
    span = scrambled(Predictive(case.query_size, 2)) if span is None else span
    inputs = draw_inputs(case, (2,), 4, 7)
    same(Looking(Attention(case.score, span=span).double()), *inputs, lengths=torch.tensor([3, 7]))


@pytest.mark.parametrize("rotary", [False, True])
def test_an_encoder(rotary):
    same(scrambled(Encoder(8, 2, 2, rotary=rotary)), normal(2, 5, 8), rtol=1e-8)


def test_a_decoder():
    same(scrambled(Decoder(8, 2, 2)), normal(2, 3, 8), normal(2, 5, 8), rtol=1e-8)


def test_watch_sees_a_compiled_model_under_plain_names():
    model, x = scrambled(Encoder(8, 2, 2)).eval(), normal(2, 5, 8)
    compiled = torch.compile(model, backend="aot_eager")
    compiled(x)
    with watch(compiled) as looks:
        result = compiled(x)
    assert set(looks) == {"blocks.0.attention", "blocks.1.attention"}
    with call_records.watch_call(compiled) as others:
        compiled(x)
    assert set(others) == set(looks)
    agree(result, model(x), rtol=1e-8)
    with watch(model) as plain:
        model(x)
    agree(looks["blocks.1.attention"].weights, plain["blocks.1.attention"].weights, rtol=1e-8)


def test_watch_sees_a_model_with_a_compiled_part():
    model = nn.ModuleDict({"left": Heads(8, heads=2), "right": Heads(8, heads=2)}).double().eval()
    model["left"].compile(backend="aot_eager")
    model["right"] = torch.compile(model["right"], backend="aot_eager")
    x = normal(2, 5, 8)
    model["left"](x), model["right"](x)
    with watch(model) as looks:
        model["left"](x)
        model["right"](x)
    assert set(looks) == {"left", "right"}
    assert looks["right"].weights.shape == (2, 2, 5, 5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # raised by torch when it imports inductor
def test_heads_by_inductor():
    same(Looking(scrambled(Heads(6, heads=2)), Causal()), normal(2, 5, 6), backend="inductor", rtol=1e-8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # raised by torch when it imports inductor
def test_additive_by_inductor():
    case = SCORES["additive"](7)
    inputs = draw_inputs(case, (2,), 4, 7)
    same(Looking(Attention(case.score).double()), *inputs, lengths=torch.tensor([3, 7]), backend="inductor", rtol=1e-8)


def test_packed_heads():
    """The layout's positions are computed while compiling."""
    heads, x = Heads(8, heads=2), torch.randn(7, 8)
    compiled = torch.compile(heads, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, span=Packed([0, 3, 7])), heads(x, span=Packed([0, 3, 7])))
