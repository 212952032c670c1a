"""Who finds the top tokens: a kernel on CUDA for few of them, the plain expression elsewhere."""

import torch

from regard.kernels.operations.top_tokens import describe, top_tokens
from regard.kernels.table import Request

END = 2


def test_calls_are_described():
    found = describe(torch.zeros(3, 20), 4)
    assert found == Request("cpu", (torch.float32,), (), {"tokens": 4, "vocabulary": 20})


def test_elsewhere_it_is_the_reference():
    scores = torch.randn(3, 20, dtype=torch.float64)
    free = torch.full((3,), -1)
    found = top_tokens(scores, 4, never=(0, 1), end=END, early=free > 0, forced=free)
    expected = scores[:, 2:].topk(4)
    assert torch.equal(found[0], expected.values)
    assert torch.equal(found[1], expected.indices + 2)
    torch.testing.assert_close(found[2], scores.logsumexp(1))
