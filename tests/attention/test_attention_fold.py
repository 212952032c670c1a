"""fold: key-value pairs from an iterator of any length give the same result as dense."""

import weakref

import oracles
import pytest
import torch
from attention.cases import (
    SCORES,
    SPANS,
    attention_of,
    dense_blocks,
    draw_inputs,
    leading,
    normal,
    number,
    pairs,
    scrambled,
)
from oracles import agree

from regard.attention import Attention, Learned
from regard.attention.score import Dot
from regard.attention.span import Lengths, Mask, Monotonic, Predictive
from regard.attention.weighting import Softmax

FOLD_SPANS = [
    "none",
    "lengths",
    "lengths-list",
    "causal-starts",
    "monotonic",
    "mask",
    "predictive-lengths",
    "lengths-causal",
]


@pytest.mark.parametrize(("name", "span_name"), pairs(SCORES, FOLD_SPANS))
def test_folded_equals_dense(name, span_name):
    lead, n, m = leading(2), number(1, 4), 9
    score = SCORES[name](m)
    span, (query, keys, values) = SPANS[span_name](lead, n, m, score.query_size), draw_inputs(score, lead, n, m)
    attention = attention_of(score)
    cuts = [number(1, 3), number(4, 8)]
    actual = attention.fold(query, iter(dense_blocks(keys, values, cuts)), span=span.span)
    expected = attention(query, keys, values, span=span.span)
    agree(actual, expected, [query, keys, values, *score.score.parameters(), *span.parameters])


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4, 5, 6, 7, 8]])
def test_folding_one_block_or_single_keys(cuts):
    score = SCORES["general"](9)
    query, keys, values = draw_inputs(score, (2,), 3, 9)
    attention = attention_of(score, weighting=Softmax(temperature=0.5))
    actual = attention.fold(query, dense_blocks(keys, values, cuts))
    agree(actual, attention(query, keys, values), [query, keys, values])


def test_folding_keeps_far_apart_blocks_exact():
    """Partial softmaxes whose sums differ by hundreds of orders of magnitude."""
    query, keys, values = normal(2, 1), torch.tensor([[-800.0], [0.0], [799.0], [800.0]]).double(), normal(4, 3)
    attention = Attention(Dot())
    agree(attention.fold(query, dense_blocks(keys, values, [1, 2, 3])), attention(query, keys, values), [query, values])


def test_folding_a_first_block_with_nothing_to_look_at():
    score = SCORES["scaled"](6)
    query, keys, values = draw_inputs(score, (), 2, 6)
    span = Mask(torch.tensor([[False, False, False, True, True, False]]))
    actual = attention_of(score).fold(query, dense_blocks(keys, values, [3]), span=span)
    agree(actual, attention_of(score)(query, keys, values, span=span), [query, keys, values])


@pytest.mark.parametrize("predicted", [False, True])
def test_folding_with_nothing_to_look_at_gives_zeros_and_finite_gradients(predicted):
    score = SCORES["general"](6)
    query, keys, values = draw_inputs(score, (2,), 3, 6)
    span = Lengths([0, 4]) & scrambled(Predictive(5, 2)) if predicted else Lengths([0, 4])
    context = attention_of(score).fold(query, dense_blocks(keys, values, [2]), span=span)
    assert not context[0].any()
    gradients = oracles.gradients(context, [query, keys, values, score.score.weight], torch.full_like(context, 100.0))
    assert all(torch.isfinite(one).all() for one in gradients)
    assert not any(one[0].any() for one in gradients[:3])


def test_folding_reads_its_blocks_one_at_a_time():
    """Memory is constant: a block may be freed once the next is read."""
    held, attention = [], Attention(Dot())

    def blocks():
        for _ in range(20):
            alive = sum(ref() is not None for ref in held)
            assert alive <= 2, f"{alive} blocks are kept"
            keys = torch.randn(64, 5)
            held.append(weakref.ref(keys))
            yield keys, torch.randn(64, 3)
            del keys

    with torch.no_grad():
        assert attention.fold(torch.randn(2, 5), blocks()).shape == (2, 3)
    assert len(held) == 20


def test_folding_with_a_learned_query_and_with_the_modules_span():
    keys, values, span = normal(2, 9, 5), normal(2, 9, 4), Lengths([3, 9])
    pooling = scrambled(Attention(Dot(), query=Learned(3, 5), span=Monotonic(2)))
    actual = pooling.fold(None, dense_blocks(keys, values, [2, 5]), span=span)
    agree(actual, pooling(None, keys, values, span=span), [keys, values, pooling.query.vectors])


def test_blocks_may_be_prepared_and_may_be_their_own_values():
    score = SCORES["general"](6)
    query, keys, values = draw_inputs(score, (2,), 3, 6)
    attention = attention_of(score)
    blocks = [(attention.prepare(k, v), None) for k, v in dense_blocks(keys, values, [2, 3])]
    agree(attention.fold(query, blocks), attention(query, keys, values), [query, keys, values])
    alone = [(k, None) for k, _ in dense_blocks(keys, values, [4])]
    agree(attention.fold(query, alone), attention(query, keys), [query, keys])


def test_folding_over_a_cache_that_is_not_full():
    attention, query = Attention(Dot()), torch.randn(2, 3, 4)
    cache = attention.cache(2, 6, keys=4, values=4)
    cache.extend(attention.prepare(torch.randn(2, 2, 4)))
    torch.testing.assert_close(attention.fold(query, [(cache, None)]), attention(query, cache))
