"""Additive attention of a few queries at the sizes of a search, in half and single precision, and in a CUDA graph."""

import pytest
import torch

from regard.attention import Additive, Attention, Prepared
from regard.kernels import reference
from regard.kernels.reference import softmax
from regard.kernels.triton import few_queries

pytestmark = pytest.mark.gpu
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 2e-2}


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
