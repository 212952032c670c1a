"""Who finds the top tokens: a kernel on CUDA for few of them, the plain expression elsewhere."""

import pytest
import torch

from regard.kernels.operations.top_tokens import MAX_TOKENS, TOP_TOKENS, describe, top_tokens
from regard.kernels.table import Request

END = 2
TRITON = TOP_TOKENS.rows[0]
ON_CUDA = Request("cuda", (torch.bfloat16,), (), {"tokens": MAX_TOKENS, "vocabulary": MAX_TOKENS})
REFUSED = {
    "device": ({"device": "cpu"}, "it runs on cuda, not on cpu"),
    "dtype": ({"dtypes": (torch.float64,)}, "it takes float32, float16 and bfloat16, not float64"),
    "many": ({"sizes": {"tokens": 33, "vocabulary": 99}}, "tokens: 33 given, expected at most 32"),
    "more than there are": ({"sizes": {"tokens": 5, "vocabulary": 4}}, "more tokens than there are"),
    "new": ({"features": ("something new",)}, "it does not serve something new"),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_the_kernel_refuses(change, words, monkeypatch):
    monkeypatch.setattr("regard.kernels.triton.INSTALLED", True)
    assert TRITON.serves(ON_CUDA)
    assert TRITON.refusal(ON_CUDA._replace(**change)) == words
    monkeypatch.setattr("regard.kernels.triton.INSTALLED", False)
    assert TRITON.refusal(ON_CUDA) == "Triton is not installed"


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
