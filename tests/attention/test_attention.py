"""Attention: every score, span and weighting combined, against the loop; and the properties that all of them share."""

import copy
import pickle

import oracles
import pytest
import torch
from attention.cases import (
    CONTENT_SCORES,
    SCORES,
    SPANS,
    WEIGHTINGS,
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

from regard.attention import Attention, Learned, use_backend
from regard.attention.score import Additive, Cosine, Dot, General, Location
from regard.attention.span import Causal, Lengths, Monotonic, Predictive
from regard.attention.weighting import Gumbel, Hard, Plain, Softmax, Sparsemax


@pytest.mark.parametrize(("score_name", "span_name"), pairs(SCORES, SPANS))
def test_every_score_with_every_span_equals_the_loop(score_name, span_name):
    lead, n, m = leading(2), number(1, 4), number(1, 6)
    score = SCORES[score_name](m)
    span, inputs = SPANS[span_name](lead, n, m, score.query_size), draw_inputs(score, lead, n, m)
    expected = oracles.over_rows(*inputs, score.oracle, span=span.oracle).context
    leaves = [*inputs, *score.score.parameters(), *span.parameters]
    for _, actual in each_backend(attention_of(score), *inputs, span=span.span):
        agree(actual, expected, leaves)


@pytest.mark.parametrize("chunk", [1, 50, 200])
@pytest.mark.parametrize("span_name", ["none", "lengths-causal", "predictive-lengths"])
def test_additive_scores_in_small_chunks_equal_the_loop(chunk, span_name, monkeypatch):
    """Chunks of one query, of a few, and of several rows at once."""
    monkeypatch.setattr("regard.kernels.operations.additive.CHUNK", chunk)
    lead, n, m = (3,), 5, 6
    score = SCORES["additive"](m)
    span, inputs = SPANS[span_name](lead, n, m, score.query_size), draw_inputs(score, lead, n, m)
    expected = oracles.over_rows(*inputs, score.oracle, span=span.oracle).context
    with use_backend("chunked"):
        actual = attention_of(score)(*inputs, span=span.span)
    agree(actual, expected, [*inputs, *score.score.parameters(), *span.parameters])


@pytest.mark.parametrize("span_name", SPANS)
@pytest.mark.parametrize("weighting_name", WEIGHTINGS)
def test_every_weighting_with_every_span_equals_the_loop(weighting_name, span_name):
    lead, n, m = leading(2), number(1, 4), number(1, 6)
    score, (build, weighting) = SCORES["general"](m), WEIGHTINGS[weighting_name]
    span, inputs = SPANS[span_name](lead, n, m, score.query_size), draw_inputs(score, lead, n, m)
    expected = oracles.over_rows(*inputs, score.oracle, span=span.oracle, weighting=weighting).context
    leaves = [*inputs, *score.score.parameters(), *span.parameters]
    for _, actual in each_backend(attention_of(score, weighting=build()), *inputs, span=span.span):
        agree(actual, expected, leaves)


@pytest.mark.parametrize("build", [Hard, Gumbel])
@pytest.mark.parametrize("span_name", SPANS)
def test_one_key_in_evaluation_with_every_span(build, span_name):
    lead, n, m = leading(2), number(1, 4), number(1, 6)
    score = SCORES["general"](m)
    span, inputs = SPANS[span_name](lead, n, m, score.query_size), draw_inputs(score, lead, n, m)
    expected = oracles.over_rows(*inputs, score.oracle, span=span.oracle, weighting=oracles.argmax).context
    agree(attention_of(score, weighting=build())(*inputs, span=span.span), expected)


def test_han_scores_the_projected_words_but_sums_the_words():
    """Yang et al.: keys tanh(W h + b), values h, the query learned."""
    projection = scrambled(torch.nn.Linear(5, 7))
    pooling = scrambled(Attention(Dot(), query=Learned(1, 7)))
    words, lengths = normal(3, 6, 5), [2, 6, 1]
    pooled = pooling(None, torch.tanh(projection(words)), words, span=Lengths(lengths))
    assert pooled.shape == (3, 1, 5)
    learned = pooling.query.vectors
    expected = [
        oracles.han(row[:length], projection.weight, projection.bias, learned[0])
        for row, length in zip(words, lengths, strict=True)
    ]
    agree(pooled[:, 0], torch.stack(expected), [words, learned, *projection.parameters()])


def test_many_learned_queries_are_as_many_poolings():
    pooling, lead = scrambled(Attention(Dot(), query=Learned(7, 5))), leading()
    keys, values = normal(*lead, 6, 5), normal(*lead, 6, 4)
    query = pooling.query.vectors
    expected = oracles.over_rows(query.expand(*lead, 7, 5), keys, values, oracles.dot).context
    agree(pooling(None, keys, values), expected, [keys, values, query])


def test_values_are_the_keys_when_not_given():
    score = SCORES["general"](6)
    query, keys, _ = draw_inputs(score, leading(), 3, 6)
    agree(attention_of(score)(query, keys), attention_of(score)(query, keys, keys), [query, keys])


# --- properties -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCORES)
def test_leading_dimensions_are_free(name):
    score = SCORES[name](6)
    inputs, lengths = draw_inputs(score, (2, 1, 3), 4, 6), torch.randint(0, 7, (2, 1, 3))
    attention = attention_of(score)
    whole = attention(*inputs, span=Lengths(lengths))
    flat = attention(*(x.flatten(0, 2) for x in inputs), span=Lengths(lengths.flatten()))
    agree(whole, flat.unflatten(0, (2, 1, 3)), [*inputs])
    rows = [attention(*(x[row] for x in inputs), span=Lengths(lengths[row])) for row in oracles.rows_of((2, 1, 3))]
    agree(whole, oracles.rows_again(rows, (2, 1, 3)), [*inputs])


@pytest.mark.parametrize("name", SCORES)
def test_leading_dimensions_broadcast(name):
    """Hypotheses share their sentence's keys; a batch shares its values."""
    score, span = SCORES[name](6), Lengths(torch.tensor([2, 6]))
    query, keys, values = normal(3, 2, 4, score.query_size), normal(2, 6, score.key_size), normal(6, 4)
    attention = attention_of(score)
    expected = attention(query, keys.expand(3, 2, -1, -1), values.expand(3, 2, -1, -1), span=span)
    for _, actual in each_backend(attention, query, keys, values, span=span):
        agree(actual, expected, [query, keys, values])
    one = query[0, 0]
    for _, actual in each_backend(attention, one, keys, values):
        agree(actual, attention(one.expand(2, -1, -1), keys, values.expand(2, -1, -1)), [query, keys, values])


@pytest.mark.parametrize("name", SCORES)
def test_a_batch_of_no_rows_gives_no_rows(name):
    score = SCORES[name](6)
    inputs = draw_inputs(score, (0,), 4, 6)
    for _, actual in each_backend(attention_of(score), *inputs):
        assert actual.shape == (0, 4, 4)
        assert [one.shape for one in oracles.gradients(actual, [*inputs], actual)] == [x.shape for x in inputs]


@pytest.mark.parametrize("name", SCORES)
def test_the_layout_in_memory_does_not_matter(name):
    score = SCORES[name](6)
    query, keys, values = normal(score.query_size, 2, 3), normal(score.key_size, 6, 2), normal(6, 2, 4)
    turned = query.permute(1, 2, 0), keys.permute(2, 1, 0), values.transpose(0, 1)
    expected = attention_of(score)(*(x.contiguous() for x in turned))
    for _, actual in each_backend(attention_of(score), *turned):
        agree(actual, expected, [query, keys, values])


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("n", [1, 2, 13])
def test_the_number_of_queries_is_free_of_the_number_of_keys(name, n):
    """N_Q queries give N_Q contexts for any N_X, and each equals the context of that query alone."""
    score = SCORES[name](7)
    query, keys, values = draw_inputs(score, (2,), n, 7)
    attention = attention_of(score)
    together = attention(query, keys, values)
    assert together.shape == (2, n, 4)
    apart = [attention(query[:, i : i + 1], keys, values) for i in range(n)]
    agree(together, torch.cat(apart, dim=1), [query, keys, values])


@pytest.mark.parametrize("weighting", [Softmax, Sparsemax, Plain])
@pytest.mark.parametrize("name", CONTENT_SCORES)
def test_a_content_score_is_blind_to_the_order_of_keys_and_follows_the_order_of_queries(name, weighting):
    score = SCORES[name](7)
    query, keys, values = draw_inputs(score, (2,), 5, 7)
    attention, order, turn = attention_of(score, weighting=weighting()), torch.randperm(7), torch.randperm(5)
    straight = attention(query, keys, values)
    agree(attention(query[:, turn], keys[:, order], values[:, order]), straight[:, turn], [query, keys, values])


@pytest.mark.parametrize("what", ["location", "causal", "monotonic", "predictive"])
def test_positions_break_the_blindness(what):
    score = SCORES["location" if what == "location" else "scaled"](7)
    spans = {"causal": Causal(), "monotonic": Monotonic(1), "predictive": scrambled(Predictive(5, 1))}
    query, keys, values = draw_inputs(score, (), 7, 7)
    attention = attention_of(score, span=spans.get(what))
    order = torch.arange(7).roll(3)
    assert not torch.allclose(attention(query, keys[order], values[order]), attention(query, keys, values))


@pytest.mark.parametrize("name", SCORES)
def test_values_may_be_projected_before_or_after(name):
    """A(X W_V) = (A X) W_V."""
    score, weight = SCORES[name](6), normal(4, 3)
    query, keys, values = draw_inputs(score, leading(), 3, 6)
    attention = attention_of(score)
    agree(
        attention(query, keys, values @ weight), attention(query, keys, values) @ weight, [query, keys, values, weight]
    )


# --- dropout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [None, Monotonic(9), Lengths(torch.tensor(30))])
@pytest.mark.parametrize("name", ["scaled", "additive"])
def test_dropout_is_on_the_weights_and_not_renormalised(name, span):
    """With the identity as values the context is the weights: each is zero or scaled by 1/(1 - p), in every backend."""
    score = SCORES[name](50)
    query, keys, values = normal(40, 5), normal(50, score.key_size), torch.eye(50, dtype=torch.float64)
    attention = Attention(score.score, dropout=0.25).double()
    weights = attention.eval()(query, keys, values, span=span)
    for _, dropped in each_backend(attention.train(), query, keys, values, span=span):
        kept = dropped != 0
        agree(dropped[kept], (weights / 0.75)[kept])
        share, most = (kept.sum() / (weights != 0).sum()).item(), (weights != 0).sum().item()
        assert abs(share - 0.75) < 5 * (0.25 * 0.75 / most) ** 0.5
        assert not torch.allclose(dropped.sum(-1), weights.sum(-1))


def test_dropout_is_not_shown_by_look_and_absent_in_evaluation():
    query, keys, values = normal(4, 5), normal(6, 5), normal(6, 3)
    attention = Attention(Dot(), dropout=0.5).train()
    agree(attention.look(query, keys, values).weights, (query @ keys.mT).softmax(-1))
    agree(attention.eval()(query, keys, values), (query @ keys.mT).softmax(-1) @ values)


# --- numbers, and keeping -------------------------------------------------------------------------------------------


def huge_scores(name, dtype):
    """Return a score, queries and keys whose scores are ±1e4."""
    sign = torch.tensor([[1.0], [-1.0], [1.0]])
    hundred = torch.full((2, 1), 100.0)
    if name == "general":
        score = General(1, 1)
        torch.nn.init.ones_(score.weight)
        return score, hundred, 100 * sign
    if name == "additive":
        score = Additive(1, 1, hidden=1)
        for parameter, value in zip(score.parameters(), (0, 1, 0, 1), strict=False):
            torch.nn.init.constant_(parameter, value)
        torch.nn.init.zeros_(score.query.weight)
        torch.nn.init.ones_(score.key.weight)
        torch.nn.init.zeros_(score.key.bias)
        torch.nn.init.constant_(score.v, 1e4)
        return score, hundred, 100 * sign
    if name == "cosine":
        return Cosine(1e4), hundred, 100 * sign
    if name == "cosine-query":
        return Cosine("query"), torch.tensor([[1.0, 1e4]] * 2), sign
    if name == "location":
        score = Location(1, length=3)
        with torch.no_grad():
            score.weight.copy_(100 * sign)
        return score, hundred, sign
    return Dot(), hundred, 100 * sign


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["dot", "general", "additive", "cosine", "cosine-query", "location"])
@pytest.mark.parametrize("span", [None, Lengths(torch.tensor(2)), Lengths(torch.tensor(0)), Causal()])
def test_half_precision_stays_finite_at_huge_scores(name, dtype, span):
    score, query, keys = huge_scores(name, dtype)
    attention = Attention(score).to(dtype)
    leaves = [x.to(dtype).requires_grad_() for x in (query, keys, torch.randn(3, 4))]
    assert attention.look(*leaves).scores.abs().min() > 9e3
    for _, context in each_backend(attention, *leaves, span=span):
        assert context.dtype == dtype
        assert torch.isfinite(context).all()
        gradients = oracles.gradients(context, [*leaves, *attention.parameters()], torch.randn_like(context))
        assert all(torch.isfinite(one).all() for one in gradients)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("build", [Softmax, Sparsemax, Hard, Gumbel])
@pytest.mark.parametrize("training", [True, False])
def test_every_weighting_stays_finite_at_huge_scores(build, dtype, training):
    _, query, keys = huge_scores("dot", dtype)
    leaves = [x.to(dtype).requires_grad_() for x in (query, keys, torch.randn(3, 4))]
    context = Attention(Dot(), weighting=build()).train(training)(*leaves)
    assert context.dtype == dtype
    assert torch.isfinite(context).all()
    assert all(torch.isfinite(one).all() for one in oracles.gradients(context, leaves, torch.randn_like(context)))


ATTENTIONS = {
    "general": lambda: Attention(General(5, 5)),
    "additive": lambda: Attention(Additive(5, 5, hidden=7)),
    "cosine": lambda: Attention(Cosine("learned")),
    "location": lambda: Attention(Location(5, length=9)),
    "local-p": lambda: Attention(General(5, 5), span=Predictive(5, 2)),
    "pooling": lambda: Attention(Dot(), query=Learned(3, 5)),
}


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "pickle"])
def test_kept_and_loaded_it_is_the_same(name, way):
    one, keys = scrambled(ATTENTIONS[name]()).eval(), normal(2, 6, 5)
    if way == "state_dict":
        other = ATTENTIONS[name]().double().eval()
        other.load_state_dict(one.state_dict(), strict=True)
    else:
        other = copy.deepcopy(one) if way == "deepcopy" else pickle.loads(pickle.dumps(one))
    query = None if name == "pooling" else normal(2, 3, 5)
    assert {k: v.shape for k, v in other.state_dict().items()} == {k: v.shape for k, v in one.state_dict().items()}
    assert torch.equal(one(query, keys), other(query, keys))


def test_a_forced_backend_is_thread_local_and_ends_with_its_block():
    import threading

    attention, inputs = Attention(Dot()), [torch.randn(2, 3, 8) for _ in range(3)]
    chosen, seen = attention.backend(*inputs), []
    with use_backend("dense"):
        assert attention.backend(*inputs) == "dense"
        thread = threading.Thread(target=lambda: seen.append(attention.backend(*inputs)))
        thread.start()
        thread.join()
    assert seen == [chosen]
    assert chosen != "dense", "the plain dot product has a faster backend than the specification"
    assert attention.backend(*inputs) == chosen


def test_a_module_does_not_remember_its_input():
    import gc
    import weakref

    attention = Attention(Additive(5, 5, hidden=7))
    query, keys = torch.randn(2, 5), torch.randn(6, 5)
    refs = [weakref.ref(query), weakref.ref(keys)]
    attention(query, keys)
    del query, keys
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_a_large_pool_by_a_learned_query_is_chunked():
    pool, keys = Attention(Additive(64, 64, hidden=64), query=Learned(1, 64)), torch.randn(16, 1024, 64)
    assert pool.backend(None, keys) == "chunked"


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
        def project_keys(self, keys):
            calls.append(keys.shape)
            return super().project_keys(keys)

    attention, query, keys = Attention(Counting(5, 3)), torch.randn(2, 5), torch.randn(6, 3)
    prepared = attention.prepare(keys)
    for _ in range(3):
        attention(query, prepared)
    assert len(calls) == 1
