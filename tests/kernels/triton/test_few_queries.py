"""Additive attention of a few queries: equal to the reference's context and weights; padding is never read."""

import interpreted  # noqa: F401
import pytest
import torch

pytest.importorskip("triton")
from regard.attention import Additive, Attention, Lengths, Prepared
from regard.kernels import backends, reference
from regard.kernels.backends import ADDITIVE, BILINEAR, DROPOUT, GRADIENT, LENGTHS, MASK, SOFTMAX
from regard.kernels.planning import Request
from regard.kernels.reference import softmax
from regard.kernels.triton import few_queries

DEVICES = ["cuda" if torch.cuda.is_available() else "cpu"]
# a GPU approximates tanh
CLOSE = {"rtol": 2e-3, "atol": 2e-3} if torch.cuda.is_available() else {"rtol": 1e-4, "atol": 1e-5}


def draw(r, n, m, h, dv, dtype=torch.float32):
    device = DEVICES[0]
    query, keys, values = (torch.randn(r, *size, device=device).to(dtype) for size in ((n, h), (m, h), (m, dv)))
    lengths = torch.randint(0, m + 1, (r,), device=device)
    lengths[0] = m
    return query, keys, values, torch.randn(h, device=device), lengths


def expected(query, keys, values, vector, lengths=None, temperature=1.0):
    """Compute the definition in float64."""
    query, keys, values, vector = (x.double() for x in (query, keys, values, vector))
    scores = reference.additive_scores(query, keys, vector)
    mask = None
    if lengths is not None:
        mask = (torch.arange(keys.shape[1], device=keys.device) < lengths[:, None])[:, None].expand_as(scores)
    weights = softmax(scores, mask, temperature)
    return weights @ values, weights


def close(found, wanted):
    torch.testing.assert_close(tuple(one.double() for one in found), wanted, **CLOSE)


def poisoned(query, keys, values):
    return (
        torch.full((*query.shape[:2], values.shape[2]), torch.nan, dtype=values.dtype, device=values.device),
        torch.full((*query.shape[:2], keys.shape[1]), torch.nan, device=values.device),
    )


@pytest.mark.parametrize("n", [1, 2, 7, 16])
@pytest.mark.parametrize(("m", "h", "dv"), [(1, 1, 1), (7, 5, 3), (33, 63, 65), (63, 16, 300)])
def test_it_is_the_reference(n, m, h, dv):
    query, keys, values, vector, lengths = draw(3, n, m, h, dv)
    behind = torch.arange(m, device=keys.device) >= lengths[:, None]
    for limit in (None, lengths):
        wanted = expected(query, keys, values, vector, limit, 0.7)
        if limit is not None:  # entries past a length are never read
            keys, values = (x.masked_fill(behind[..., None], torch.nan) for x in (keys, values))
        context, weights = poisoned(query, keys, values)
        found = few_queries.look(query, keys, values, vector, limit, 0.7, context=context, weights=weights)
        assert found[0] is context
        assert found[1] is weights
        close(found, wanted)
        again = few_queries.look(query, keys, values, vector, limit, 0.7)
        assert torch.equal(again[0], context)
        assert torch.equal(again[1], weights)


def test_wide_hidden_layers_go_in_blocks():
    inputs = draw(1, 2, 5, 1029, 4)
    close(few_queries.look(*inputs), expected(*inputs))


@pytest.mark.parametrize("n", [1, 3])
def test_few_rows_of_many_keys_are_split(monkeypatch, n):
    monkeypatch.setattr(few_queries, "MANY", 200)
    inputs = draw(3, n, 300, 9, 70)
    inputs[-1][1] = 0
    inputs[-1][2] = 5
    close(few_queries.look(*inputs), expected(*inputs))


def test_strides_are_taken_as_they_are():
    query, keys, values, vector, lengths = draw(4, 3, 9, 8, 6)
    wanted = expected(query, keys, values, vector, lengths)
    other = (
        torch.cat([x, x], -1)[..., : x.shape[-1]].transpose(0, 1).contiguous().transpose(0, 1) for x in (keys, values)
    )
    context = torch.full((3, 4, 10), torch.nan, device=keys.device).transpose(0, 1)[..., 2:8]
    found = few_queries.look(query, *other, vector, lengths, context=context)
    assert found[0].data_ptr() == context.data_ptr()
    torch.testing.assert_close(found[0].double(), wanted[0], **CLOSE)


@pytest.mark.parametrize("n", [1, 5])
def test_half_precision_is_rounded_once(n):
    inputs = draw(2, n, 40, 64, 96, torch.bfloat16)
    context, weights = few_queries.look(*inputs)
    assert context.dtype == torch.bfloat16
    torch.testing.assert_close(weights.double(), expected(*inputs)[1], **CLOSE)
    torch.testing.assert_close(
        context.double(), expected(*inputs)[0], rtol=2**-8, atol=CLOSE["atol"]
    )  # half of the last of eight bits


def test_a_call_with_heads_and_a_batch():
    """A vector per head, lengths per row, keys of one row for all."""
    attention = Attention(Additive(4, 4, hidden=6)).to(DEVICES[0])
    query, keys = torch.randn(2, 3, 5, 4, device=DEVICES[0]), torch.randn(3, 7, 4, device=DEVICES[0])
    span = Lengths(torch.tensor([[7, 1, 0], [3, 2, 7]]))
    with torch.no_grad():
        prepared = attention.prepare(keys)
        call = attention.resolve_call(attention.score.project_query(query), prepared, query, span, False)
        torch.testing.assert_close(few_queries.attend(call), backends.reference.attend(call), **CLOSE)


def test_what_the_table_says():
    sizes = {"rows": 256, "queries": 5, "keys": 25, "width": 512, "value width": 1024, "radius": 0}
    request = Request("cuda", (torch.bfloat16,), (ADDITIVE, SOFTMAX, LENGTHS), sizes)
    assert backends.choose(request).name == "few-queries-additive"
    for change, words in (
        ({"sizes": {**sizes, "queries": 17}}, "queries: 17 given, expected at most 16"),
        ({"features": (ADDITIVE, SOFTMAX, GRADIENT)}, "it does not serve a backward pass"),
        ({"device": "cpu"}, "it runs on cuda, not on cpu"),
        ({"features": (ADDITIVE, SOFTMAX, LENGTHS, MASK)}, "it does not serve a mask"),
        ({"features": (ADDITIVE, SOFTMAX, DROPOUT)}, "it does not serve dropout on the weights"),
        ({"features": (BILINEAR, SOFTMAX)}, "it does not serve bilinear scores"),
        ({"features": (ADDITIVE, "sparsemax")}, "it does not serve sparsemax"),
        ({"dtypes": (torch.float64,)}, "it takes float32, float16 and bfloat16, not float64"),
    ):
        changed = request._replace(**change)
        assert backends.FEW_QUERIES_ADDITIVE.refusal(changed) == words
        assert backends.choose(changed).name != "few-queries-additive"


@pytest.mark.parametrize("rows", [1, 2, 7, 263, 264, 1000])
@pytest.mark.parametrize("keys", [1, 511, 512, 513, 1500, 100_000])
def test_keys_are_split_where_rows_do_not_fill_the_gpu(rows, keys):
    splits, chunk = few_queries.split_keys(rows, keys)
    assert (splits - 1) * chunk < keys <= splits * chunk  # every program has keys, and none is left out
    assert splits <= few_queries.MAX_SPLITS
    if rows >= few_queries.ROWS or keys < few_queries.MANY:
        assert splits == 1
    else:
        assert splits > 1
        assert chunk >= 64 or keys < 2 * few_queries.MANY


# ---- gradients of queries that arrive one by one: equal to the reference's of all queries at once


CLOSE_GRADIENTS = {"rtol": 5e-3, "atol": 5e-3} if torch.cuda.is_available() else {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize(
    ("r", "n", "m", "h", "dv"), [(1, 1, 1, 1, 1), (3, 4, 7, 5, 3), (2, 3, 33, 63, 65), (2, 1, 40, 17, 300)]
)
@pytest.mark.parametrize("watched", [False, True])
def test_gradients_step_by_step_are_the_references(r, n, m, h, dv, watched):
    query, keys, values = (
        torch.randn(r, *size, dtype=torch.float64, requires_grad=True) for size in ((n, h), (m, h), (m, dv))
    )
    vector = torch.randn(h, dtype=torch.float64, requires_grad=True)
    lengths = torch.randint(0, m + 1, (r,))
    lengths[0] = m
    there = torch.arange(m) < lengths[:, None]
    weights = softmax(reference.additive_scores(query, keys, vector), there[:, None].expand(r, n, m))
    context = weights @ values
    grads = torch.randn_like(context), torch.randn_like(weights)
    outputs = ([context, weights], list(grads)) if watched else ([context], [grads[0]])
    wanted = torch.autograd.grad(outputs[0], [query, keys, values, vector], outputs[1])

    q, k, v, u, dc, da = (x.detach().float().to(DEVICES[0]) for x in (query, keys, values, vector, *grads))
    k, v = (x.masked_fill(~there[..., None].to(DEVICES[0]), torch.nan) for x in (k, v))
    length = lengths.to(DEVICES[0])
    poison = lambda *shape: torch.full(shape, torch.nan, device=DEVICES[0])  # noqa: E731
    d_scores, d_query, whole, raw = poison(r, n, m), poison(r, n, h), poison(r, n, dv), poison(r, m)
    found_weights = poison(r, n, m)
    for i in range(n):
        few_queries.look(q[:, i : i + 1], k, v, u, length, weights=found_weights[:, i : i + 1])
        part = torch.randn_like(dc[:, i])
        few_queries.step_gradients(
            q[:, i], k, v, u, length, found_weights[:, i], (part, dc[:, i] - part), da[:, i] if watched else None, raw,
            whole[:, i], d_scores[:, i], d_query[:, i],
        )  # fmt: skip
    d_keys, d_vector = few_queries.key_gradients(q, k, u, length, d_scores)
    d_values = found_weights.mT @ whole
    for one, other in zip((d_query, d_keys, d_values, d_vector), wanted, strict=True):
        # Scale by the whole: a small difference has the rounding errors of the large numbers that cancelled.
        scale = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one.double().cpu() / scale, other / scale, **CLOSE_GRADIENTS)


# ---- at the sizes of a search, in half and single precision, and in a CUDA graph


TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 2e-2}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("r", "n", "m"), [(256, 1, 25), (256, 5, 25), (300, 16, 128), (4, 5, 1500)])
def test_real_sizes(dtype, r, n, m):
    query, keys, values = (torch.randn(r, *s, device="cuda").to(dtype) for s in ((n, 512), (m, 512), (m, 1024)))
    vector, lengths = torch.randn(512, device="cuda") / 4, torch.randint(0, m + 1, (r,), device="cuda")
    context, weights = few_queries.look(query, keys, values, vector, lengths)
    some = slice(0, r, max(1, r // 4))
    there = (torch.arange(m, device="cuda") < lengths[some, None])[:, None]
    scores = reference.additive_scores(query[some].double(), keys[some].double(), vector.double())
    wanted = softmax(scores, there.expand_as(scores))
    torch.testing.assert_close(weights[some].double(), wanted, rtol=0, atol=1e-3)
    torch.testing.assert_close(context[some].double(), wanted @ values[some].double(), rtol=0, atol=TOLERANCE[dtype])
    again = few_queries.look(query, keys, values, vector, lengths)
    assert torch.equal(again[0], context)
    assert torch.equal(again[1], weights)


@pytest.mark.gpu
def test_it_serves_an_attention_and_replays():
    attention = Attention(Additive(64, 96, hidden=128)).cuda()
    query, keys = torch.randn(33, 5, 64, device="cuda"), torch.randn(33, 40, 96, device="cuda")
    length = torch.randint(0, 41, (33,), device="cuda")
    with torch.no_grad():
        made = attention.prepare(keys)
        prepared = Prepared(made.keys, made.values, attention, length)
        assert attention.backend(query, prepared) == "few-queries-additive"
        attention(query, prepared)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = attention(query, prepared)
        query.normal_()
        length.random_(0, 41)
        graph.replay()
        assert torch.equal(found, attention(query, prepared))
