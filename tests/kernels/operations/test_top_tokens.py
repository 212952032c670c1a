"""Which backend finds the top tokens: a kernel on CUDA for few of them, the plain expression elsewhere."""

import torch

from regard.kernels.operations.top_tokens import top_tokens

END = 2


def test_elsewhere_it_is_the_reference():
    scores = torch.randn(3, 20, dtype=torch.float64)
    free = torch.full((3,), -1)
    found = top_tokens(scores, 4, never=(0, 1), end=END, early=free > 0, forced=free)
    expected = scores[:, 2:].topk(4)
    assert torch.equal(found[0], expected.values)
    assert torch.equal(found[1], expected.indices + 2)
    torch.testing.assert_close(found[2], scores.logsumexp(1))
