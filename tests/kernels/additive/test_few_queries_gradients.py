"""The gradients of additive attention whose queries come one by one: the reference's, of all queries at once."""

import interpreted  # noqa: F401
import pytest
import torch

pytest.importorskip("triton")
from regard.kernels import reference
from regard.kernels.additive import few_queries, few_queries_gradients
from regard.kernels.reference import softmax

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLOSE = {"rtol": 5e-3, "atol": 5e-3} if torch.cuda.is_available() else {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize(
    ("r", "n", "m", "h", "dv"), [(1, 1, 1, 1, 1), (3, 4, 7, 5, 3), (2, 3, 33, 63, 65), (2, 1, 40, 17, 300)]
)
@pytest.mark.parametrize("watched", [False, True])
def test_they_are_the_references(r, n, m, h, dv, watched):
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

    q, k, v, u, dc, da = (x.detach().float().to(DEVICE) for x in (query, keys, values, vector, *grads))
    k, v = (x.masked_fill(~there[..., None].to(DEVICE), torch.nan) for x in (k, v))
    length = lengths.to(DEVICE)
    poison = lambda *shape: torch.full(shape, torch.nan, device=DEVICE)  # noqa: E731
    d_scores, d_query, whole, raw = poison(r, n, m), poison(r, n, h), poison(r, n, dv), poison(r, m)
    found_weights = poison(r, n, m)
    for i in range(n):
        few_queries.look(q[:, i : i + 1], k, v, u, length, weights=found_weights[:, i : i + 1])
        part = torch.randn_like(dc[:, i])
        few_queries_gradients.step_gradients(
            q[:, i], k, v, u, length, found_weights[:, i], (part, dc[:, i] - part), da[:, i] if watched else None, raw,
            whole[:, i], d_scores[:, i], d_query[:, i],
        )  # fmt: skip
    d_keys, d_vector = few_queries_gradients.key_gradients(q, k, u, length, d_scores)
    d_values = found_weights.mT @ whole
    for one, other in zip((d_query, d_keys, d_values, d_vector), wanted, strict=True):
        # By the size of the whole: what cancels to little has the rounding of what it cancelled from.
        scale = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one.double().cpu() / scale, other / scale, **CLOSE)
