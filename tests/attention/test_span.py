"""Each span against its paper's formula, forward and gradients, in attention by every backend that serves it."""

import math

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
    normal,
    number,
    pairs,
    scrambled,
)
from oracles import agree

from regard.attention import Attention
from regard.attention.score import Additive, Dot, General, Location
from regard.attention.span import Alibi, Causal, Lengths, Mask, Monotonic, Packed, Predictive


@pytest.mark.parametrize("repeat", range(2))
@pytest.mark.parametrize("name", SPANS)
def test_span_equals_the_formula(name, repeat):
    lead, n, m = leading(), number(1, 5), number(1, 7)
    score = SCORES["scaled"](m)
    span = SPANS[name](lead, n, m, score.query_size)
    inputs = draw_inputs(score, lead, n, m)
    expected = oracles.over_rows(*inputs, score.oracle, span=span.oracle).context
    for _, actual in each_backend(attention_of(score), *inputs, span=span.span):
        agree(actual, expected, [*inputs, *span.parameters])


def test_strictly_earlier_is_causal_from_minus_one():
    """Cheng et al.'s intra-attention: the first query has no key to look at."""
    weights = Attention(Dot()).look(normal(5, 3), normal(5, 3), span=Causal(-1)).weights
    assert not weights.triu().any()
    agree(weights.sum(-1), torch.tensor([0.0, 1, 1, 1, 1], dtype=torch.float64))


# --- Luong's local attention ----------------------------------------------------------------------------------------


def local_p_case(length, keys, radius):
    """Return one query that predicts a position in a sentence of `length` padded to `keys`, and its parts."""
    span = scrambled(Predictive(5, radius))
    query, annotations = normal(1, 5), normal(keys, 5)
    look = Attention(Dot(), span=span).look(query, annotations, span=Lengths(torch.tensor(length)))
    centre = oracles.centre_p(query[0], span.hidden.weight, span.v, length)
    return look, (query @ annotations.mT)[0], centre


def test_local_p_gaussian_comes_after_the_softmax_and_is_not_renormalised():
    look, scores, centre = local_p_case(length=9, keys=9, radius=2)
    window = [j for j in range(9) if abs(j - centre.item()) <= 2]
    shares = scores[window].softmax(-1)
    gate = torch.stack([torch.exp(-((j - centre) ** 2) / 2) for j in window])
    agree(look.weights[0, window], shares * gate)
    assert look.weights.sum() < 1
    agree(look.weights.sum(), (shares * gate).sum())


def test_local_p_predicts_within_the_true_length_not_the_padded_one():
    look, _, centre = local_p_case(length=4, keys=13, radius=2)
    agree(look.centre, centre.reshape(1))
    assert 0 < look.centre.item() < 4


def test_local_p_deviation_is_half_the_radius():
    """A window over one key does not show σ; over two keys, their ratio divided by the softmax's does."""
    radius = 4
    look, scores, centre = local_p_case(length=9, keys=9, radius=radius)
    a, b = sorted(range(9), key=lambda j: abs(j - centre.item()))[:2]
    ratio = torch.log(look.weights[0, a] / look.weights[0, b]) - (scores[a] - scores[b])
    variance = ((b - centre) ** 2 - (a - centre) ** 2) / (2 * ratio)
    agree(variance, torch.tensor((radius / 2) ** 2, dtype=torch.float64), rtol=1e-6)


def test_local_p_window_is_clipped_at_the_sentence():
    """With a prediction at the sentence's end, keys past it get no weight and do not enter the softmax's sum."""
    span = scrambled(Predictive(5, 3))
    with torch.no_grad():
        span.v.copy_(torch.ones(5))
        span.hidden.weight.copy_(100 * torch.eye(5))
    query, keys = torch.ones(1, 5, dtype=torch.float64), normal(11, 5)
    look = Attention(Dot(), span=span).look(query, keys, span=Lengths(torch.tensor(6)))
    centre = 6 / (1 + math.exp(-5))
    window = list(range(math.ceil(centre - 3), 6))
    gate = torch.tensor([math.exp(-((j - centre) ** 2) / (2 * 1.5**2)) for j in window], dtype=torch.float64)
    agree(look.weights[0, window], (query @ keys.mT)[0, window].softmax(-1) * gate)
    assert not look.weights[0, 6:].any()
    assert not look.weights[0, : window[0]].any()


def test_local_p_weights_sum_to_at_most_one():
    span, query, keys = scrambled(Predictive(5, 2)), normal(3, 7, 5), normal(3, 13, 5)
    weights = Attention(Dot(), span=span).look(query, keys, span=Lengths([1, 7, 13])).weights
    assert (weights >= 0).all()
    assert (weights.sum(-1) <= 1 + 1e-12).all()


def test_local_m_window_is_centred_at_the_step():
    keys = torch.eye(9, dtype=torch.float64)
    weights = Attention(Dot()).look(torch.zeros(9, 9, dtype=torch.float64), keys, span=Monotonic(2)).weights
    for i, line in enumerate(weights):
        seen = [j for j in range(9) if abs(i - j) <= 2]
        agree(line, torch.tensor([1 / len(seen) if j in seen else 0.0 for j in range(9)], dtype=torch.float64))


def test_local_m_without_a_gaussian_sums_to_one():
    look = Attention(General(5, 5).double(), span=Monotonic(1)).look(normal(2, 7, 5), normal(2, 7, 5))
    agree(look.weights.sum(-1), torch.ones(2, 7, dtype=torch.float64))


@pytest.mark.parametrize("span", [lambda: Monotonic(2), lambda: Predictive(5, 2)])
def test_location_is_global_only(span):
    """Luong's location scores number the positions of the whole sentence; the paper defines none for a window."""
    from regard.errors import ArgumentError

    with pytest.raises(ArgumentError, match="(?i)location"):
        Attention(Location(5, length=9), span=span())(torch.randn(1, 5), torch.randn(9, 5))


# --- Alibi ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12])
def test_alibi_equals_the_formula(heads):
    lead, n, m = leading(1), number(1, 4), number(1, 5)
    inputs = draw_inputs(SCORES["scaled"](m), (*lead, heads), n, m)
    expected = oracles.over_rows(*inputs, oracles.scaled, span=oracles.alibi(heads)).context
    for _, actual in each_backend(Attention(Dot(scaled=True)), *inputs, span=Alibi(heads)):
        agree(actual, expected, inputs)


@pytest.mark.parametrize("heads", [2, 3])
def test_alibi_with_a_start_causal_and_lengths(heads):
    n, m, starts, lengths = 3, 6, torch.tensor([0, 2]), torch.tensor([4, 6])
    inputs = draw_inputs(SCORES["scaled"](m), (2, heads), n, m)
    oracle = oracles.join(oracles.alibi(heads, starts), oracles.causal(starts), oracles.lengths(lengths))
    expected = oracles.over_rows(*inputs, oracles.scaled, span=oracle).context
    over_heads = lengths[:, None].expand(2, heads)
    span = Alibi(heads, starts[:, None]) & Causal(starts[:, None].expand(2, heads)) & Lengths(over_heads)
    for _, actual in each_backend(Attention(Dot(scaled=True)), *inputs, span=span):
        agree(actual, expected, inputs)


def test_alibi_slopes_are_the_papers():
    """Press et al.: 8 heads 1/2 … 1/256; 16 heads 2^-0.5 …; 12 heads the 8's, then every other of the 16's."""
    eight = [2.0**-h for h in range(1, 9)]
    keys = torch.zeros(12, 2, 1, dtype=torch.float64)
    for heads, slopes in [(8, eight), (12, [*eight, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])]:
        weights = Attention(Dot()).look(keys[:heads, :1], keys[:heads], span=Alibi(heads)).weights
        agree(weights[:, 0, 0].log() - weights[:, 0, 1].log(), torch.tensor(slopes, dtype=torch.float64))


def test_two_alibis_are_added():
    inputs = draw_inputs(SCORES["scaled"](6), (2, 3), 4, 6)
    oracle = oracles.join(oracles.alibi(3), oracles.alibi(3, 2))
    expected = oracles.over_rows(*inputs, oracles.scaled, span=oracle).context
    agree(Attention(Dot(scaled=True), span=Alibi(3))(*inputs, span=Alibi(3, 2)), expected, inputs)


# --- padding --------------------------------------------------------------------------------------------------------


PADDED = pairs(SCORES, ["lengths", "lengths-causal", "lengths-monotonic-mask", "predictive-lengths"])


@pytest.mark.parametrize(("score_name", "name"), PADDED)
def test_padding_never_changes_a_result_and_gets_no_gradient(score_name, name):
    n, length, m = number(1, 5), number(1, 6), 9
    score = SCORES[score_name](m)
    query, keys, values = draw_inputs(score, (), n, length)
    predictive, mask = scrambled(Predictive(score.query_size, 2)), torch.rand(n, length) < 0.7
    build = {
        "lengths": lambda end, extra: Lengths(end),
        "lengths-causal": lambda end, extra: Lengths(end) & Causal(1),
        "lengths-monotonic-mask": lambda end, extra: (
            Lengths(end) & Monotonic(2) & Mask(torch.nn.functional.pad(mask, (0, extra), value=True))
        ),
        "predictive-lengths": lambda end, extra: predictive & Lengths(end),
    }[name]
    end, extra = torch.tensor(length), m - length
    garbage = [torch.full((extra, x.shape[-1]), 1e4, dtype=torch.float64, requires_grad=True) for x in (keys, values)]
    padded = [torch.cat([x, y]) for x, y in zip((keys, values), garbage, strict=True)]
    alone = attention_of(score)(query, keys, values, span=build(end, 0))
    leaves = [query, keys, values, *score.score.parameters(), *predictive.parameters()]
    for _, actual in each_backend(attention_of(score), query, *padded, span=build(end, extra)):
        agree(actual, alone, leaves)
        for gradient in oracles.gradients(actual, garbage, torch.randn_like(actual)):
            assert not gradient.any()


def test_changing_the_order_of_rows_changes_only_the_order_of_results():
    lengths, inputs = torch.tensor([3, 7, 0, 5]), draw_inputs(SCORES["scaled"](7), (4,), 2, 7)
    order = torch.randperm(4)
    attention = Attention(Dot(scaled=True))
    straight = attention(*inputs, span=Lengths(lengths))
    agree(attention(*(x[order] for x in inputs), span=Lengths(lengths[order])), straight[order], inputs)


# --- empty rows -----------------------------------------------------------------------------------------------------


EMPTY = {
    "lengths": lambda: Lengths([0, 6]),
    "mask": lambda: Mask(torch.tensor([[[False] * 6] * 6, [[True] * 6] * 6])),
    "lengths-causal": lambda: Lengths([0, 6]) & Causal(),
    "monotonic": lambda: Monotonic(1, torch.tensor([20, 0])),
    "predictive": lambda: scrambled(Predictive(5, 2)) & Lengths([0, 6]),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("score_name", ["scaled", "general", "additive", "cosine"])
def test_a_query_with_nothing_to_look_at_gives_zeros_and_finite_gradients(name, score_name):
    score = SCORES[score_name](6)
    inputs = draw_inputs(score, (2,), 6, 6)
    for _, context in each_backend(attention_of(score), *inputs, span=EMPTY[name]()):
        assert not context[0].any()
        assert context[1].any()
        gradients = oracles.gradients(context, [*inputs, *score.score.parameters()], torch.randn_like(context))
        assert all(torch.isfinite(one).all() for one in gradients)
        assert not any(one[0].any() for one in gradients[:3])


# --- packed ---------------------------------------------------------------------------------------------------------


def packed_case(lengths, queries=None, score_name="scaled"):
    queries = lengths if queries is None else queries
    score = SCORES[score_name](max(lengths))
    return score, [draw_inputs(score, (), n, m) for n, m in zip(queries, lengths, strict=True)]


def offsets(lengths):
    return torch.tensor([0, *lengths]).cumsum(0)


INSIDE = {
    "none": lambda width: (None, oracles.everywhere),
    "causal": lambda width: (Causal(), oracles.causal()),
    "monotonic": lambda width: (Monotonic(2), oracles.local_m(2)),
}


PACKED = pairs(["scaled", "general", "additive", "cosine-query", "location"], [*INSIDE, "predictive"])


@pytest.mark.parametrize(("score_name", "name"), PACKED)
@pytest.mark.parametrize("cross", [False, True])
def test_packed_equals_each_sequence_alone(score_name, name, cross):
    lengths = [3, 1, 7, 2]
    queries = [2, 5, 1, 4] if cross else lengths
    score, sequences = packed_case(lengths, queries, score_name)
    parameters = list(score.score.parameters())
    if name == "predictive":
        span = scrambled(Predictive(score.query_size, 2))
        oracle = oracles.local_p(span.hidden.weight, span.v, 2)
        parameters += list(span.parameters())
    else:
        span, oracle = INSIDE[name](score.query_size)
    packed = Packed(offsets(queries), offsets(lengths)) if cross else Packed(offsets(lengths))
    leaves = [x for inputs in sequences for x in inputs]
    joined = [torch.cat(parts) for parts in zip(*sequences, strict=True)]
    expected = torch.cat([oracles.over_rows(*inputs, score.oracle, span=oracle).context for inputs in sequences])
    whole = packed if span is None else packed & span
    for _, actual in each_backend(attention_of(score), *joined, span=whole):
        agree(actual, expected, leaves + parameters)
    if span is not None:
        agree(attention_of(score)(*joined, span=span & packed), expected)


@pytest.mark.parametrize("name", INSIDE)
def test_packed_equals_padded(name):
    lengths = [3, 7, 2]
    score, sequences = packed_case(lengths)
    span, _ = INSIDE[name](5)
    padded = [torch.nn.utils.rnn.pad_sequence(parts, batch_first=True) for parts in zip(*sequences, strict=True)]
    rows = Lengths(lengths) if span is None else Lengths(lengths) & span
    expected = attention_of(score)(*padded, span=rows)
    expected = torch.cat([row[:length] for row, length in zip(expected, lengths, strict=True)])
    ends = Packed(offsets(lengths)) if span is None else Packed(offsets(lengths)) & span
    joined = [torch.cat(parts) for parts in zip(*sequences, strict=True)]
    agree(attention_of(score)(*joined, span=ends), expected, [x for inputs in sequences for x in inputs])


def test_packed_with_an_empty_sequence():
    lengths, queries = [3, 0, 4], [2, 3, 1]
    score, sequences = packed_case(lengths, queries)
    joined = [torch.cat(parts) for parts in zip(*sequences, strict=True)]
    for _, actual in each_backend(attention_of(score), *joined, span=Packed(offsets(queries), offsets(lengths))):
        assert not actual[2:5].any()
        gradients = oracles.gradients(actual, joined, torch.randn_like(actual))
        assert all(torch.isfinite(one).all() for one in gradients)
        agree(actual[:2], attention_of(score)(*sequences[0]), list(sequences[0]))


def test_packed_accepts_a_list():
    score, sequences = packed_case([3, 4])
    joined = [torch.cat(parts) for parts in zip(*sequences, strict=True)]
    attention = attention_of(score)
    agree(attention(*joined, span=Packed([0, 3, 7])), attention(*joined, span=Packed(torch.tensor([0, 3, 7]))))


@pytest.mark.parametrize("rows", [7, 1])
def test_packed_with_a_mask_over_all_of_it(rows):
    score, (one, other) = packed_case([4, 5], [3, 4])
    joined, mask = [torch.cat(parts) for parts in zip(one, other, strict=True)], torch.rand(rows, 9) < 0.6
    spread = mask.expand(7, 9)
    attention = attention_of(score)
    expected = [attention(*one, span=Mask(spread[:3, :4])), attention(*other, span=Mask(spread[3:, 4:]))]
    for _, actual in each_backend(attention, *joined, span=Packed([0, 3, 7], [0, 4, 9]) & Mask(mask)):
        agree(actual, torch.cat(expected), [*one, *other])


@pytest.mark.parametrize("start", [200, -200])
def test_a_window_that_never_meets_a_key_gives_zeros(start):
    query, keys = torch.randn(2, 70, 4, requires_grad=True), torch.randn(2, 300, 4, requires_grad=True)
    context = Attention(Dot(), span=Monotonic(2, start=start + (300 if start > 0 else 0)))(query, keys)
    assert not context.any()
    context.sum().backward()
    assert torch.isfinite(keys.grad).all()


@pytest.mark.parametrize("score", [Dot(), Additive(4, 4, hidden=3)])
@pytest.mark.parametrize("span", [Monotonic(1), Predictive(4, 1)])
def test_no_queries(score, span):
    assert Attention(score, span=span)(torch.randn(2, 0, 4), torch.randn(2, 30, 4)).shape == (2, 0, 4)


def test_packed_with_a_causal_start_a_row():
    x = torch.randn(7, 4)
    found = Attention(Dot())(x, x, span=Packed([0, 3, 7]) & Causal(torch.tensor([1, 0])))
    alone = [Attention(Dot())(x[:3], x[:3], span=Causal(1)), Attention(Dot())(x[3:], x[3:], span=Causal())]
    torch.testing.assert_close(found, torch.cat(alone))
