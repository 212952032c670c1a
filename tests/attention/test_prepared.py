"""Prepared: keys projected once, accepted wherever keys are, with the same result."""

import pytest
import torch
from attention.cases import SCORES, SPANS, attention_of, draw_inputs, each_backend, leading, number
from oracles import agree

from regard.attention import Attention
from regard.attention.score import General


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("span_name", ["none", "lengths", "causal-starts", "mask"])
def test_prepared_equals_unprepared(name, span_name):
    lead, n, m = leading(), number(1, 4), number(1, 6)
    score = SCORES[name](m)
    span, (query, keys, values) = SPANS[span_name](lead, n, m, score.query_size), draw_inputs(score, lead, n, m)
    attention, leaves = attention_of(score), [query, keys, values, *score.score.parameters()]
    for _, actual in each_backend(attention, query, attention.prepare(keys), values, span=span.span):
        agree(actual, attention(query, keys, values, span=span.span), leaves)
    agree(
        attention(query, attention.prepare(keys, values), span=span.span),
        attention(query, keys, values, span=span.span),
        leaves,
    )
    agree(attention(query, attention.prepare(keys), span=span.span), attention(query, keys, span=span.span), leaves)


def test_prepared_keys_are_projected_once():
    calls = []

    class Counting(General):
        def project(self, keys):
            calls.append(keys.shape)
            return super().project(keys)

    attention, query, keys = Attention(Counting(5, 3)), torch.randn(2, 5), torch.randn(6, 3)
    prepared = attention.prepare(keys)
    for _ in range(3):
        attention(query, prepared)
    assert len(calls) == 1
