"""Joined spans: masks intersect, biases add, gates multiply, in any order and also if given twice."""

import oracles
import pytest
import torch
from attention.cases import (
    SCORES,
    SPANS,
    attention_of,
    draw_inputs,
    each_backend,
    leading,
    number,
    scrambled,
)
from oracles import agree

from regard.attention import Attention
from regard.attention.score import Dot
from regard.attention.span import Causal, Lengths, Mask, Monotonic, Predictive


@pytest.mark.parametrize("name", SPANS)
def test_the_modules_span_and_the_calls_are_joined(name):
    lead, n, m = leading(), number(1, 5), number(1, 7)
    score = SCORES["scaled"](m)
    span, inputs = SPANS[name](lead, n, m, score.query_size), draw_inputs(score, lead, n, m)
    lengths = torch.randint(1, m + 1, lead)
    actual = attention_of(score, span=span.span)(*inputs, span=Lengths(lengths))
    both = Lengths(lengths) if span.span is None else Lengths(lengths) & span.span
    agree(actual, attention_of(score)(*inputs, span=both), [*inputs, *span.parameters])


def test_joining_is_the_same_in_any_order():
    inputs = draw_inputs(SCORES["scaled"](6), (2,), 6, 6)
    parts = [Lengths([4, 6]), Causal(), Monotonic(2), Mask(torch.rand(2, 6, 6) < 0.7)]
    attention = Attention(Dot(scaled=True))
    forth, back = parts[0] & parts[1] & parts[2] & parts[3], parts[3] & (parts[2] & parts[1]) & parts[0]
    agree(attention(*inputs, span=forth), attention(*inputs, span=back), inputs)


TWICE = {
    "lengths": lambda: (Lengths([4, 6]), Lengths([5, 3])),
    "causal": lambda: (Causal(1), Causal(torch.tensor([0, 2]))),
    "monotonic": lambda: (Monotonic(2), Monotonic(3, start=2)),
    "mask": lambda: (Mask(torch.rand(2, 5, 6) < 0.8), Mask(torch.rand(5, 6) < 0.8)),
    "causal and monotonic": lambda: (Causal(2), Monotonic(2, start=1)),
}


@pytest.mark.parametrize("name", TWICE)
def test_two_spans_allow_what_both_allow(name):
    one, other = TWICE[name]()
    inputs, attention = draw_inputs(SCORES["scaled"](6), (2,), 5, 6), Attention(Dot(scaled=True))
    both = (attention.look(*inputs, span=one).weights > 0) & (attention.look(*inputs, span=other).weights > 0)
    expected = oracles.over_rows(*inputs, oracles.scaled, span=oracles.mask(both)).context
    for span in (one & other, other & one):
        for _, actual in each_backend(attention, *inputs, span=span):
            agree(actual, expected, inputs)
    agree(Attention(Dot(scaled=True), span=one)(*inputs, span=other), expected, inputs)


def test_two_predictions_are_two_windows_and_two_gates():
    inputs, radii = draw_inputs(SCORES["scaled"](7), (2,), 5, 7), (3, 2)
    one, other = (scrambled(Predictive(5, radius)) for radius in radii)
    oracle = oracles.join(*(oracles.local_p(s.hidden.weight, s.v, r) for s, r in zip((one, other), radii, strict=True)))
    expected = oracles.over_rows(*inputs, oracles.scaled, span=oracle).context
    actual = Attention(Dot(scaled=True), span=one)(*inputs, span=other)
    agree(actual, expected, [*inputs, *one.parameters(), *other.parameters()])


def test_a_prediction_within_a_fixed_window():
    inputs, span = draw_inputs(SCORES["scaled"](7), (2,), 5, 7), scrambled(Predictive(5, 3))
    oracle = oracles.join(oracles.local_p(span.hidden.weight, span.v, 3), oracles.local_m(1, 1), oracles.causal(1))
    expected = oracles.over_rows(*inputs, oracles.scaled, span=oracle).context
    for _, actual in each_backend(Attention(Dot(scaled=True)), *inputs, span=span & Monotonic(1, 1) & Causal(1)):
        agree(actual, expected, [*inputs, *span.parameters()])


def test_windows_and_causality_given_twice():
    x, query = torch.randn(2, 40, 4, dtype=torch.float64), torch.randn(2, 40, 4, dtype=torch.float64)
    attention, narrow = Attention(Dot()), Mask((torch.arange(40) - torch.arange(40)[:, None]).abs() <= 1)
    twice = Monotonic(3) & Monotonic(1)
    expected = attention(query, x, span=narrow)
    torch.testing.assert_close(attention(query, x, span=twice), expected)
    torch.testing.assert_close(attention.fold(query, [(x[:, :9], None), (x[:, 9:], None)], span=twice), expected)
    rows = Causal(torch.tensor([0, 5])) & Causal(torch.tensor([3, 1]))
    torch.testing.assert_close(attention(query, x, span=rows), attention(query, x, span=Causal(torch.tensor([0, 1]))))
    predicted = Predictive(4, 5).double()
    both = attention.look(query, x, span=predicted & Monotonic(3)).weights
    whole = attention.look(query, x, span=predicted).weights
    assert not both[(torch.arange(40) - torch.arange(40)[:, None]).abs().expand(2, -1, -1) > 3].any()
    assert (both.sum(-1) <= 1).all()
    assert whole.shape == both.shape
