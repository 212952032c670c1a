"""FlexAttention equals dense: forward on a CPU, where it has no gradients. Runs without the shape-checking hook.

(The hook wraps the index functions that FlexAttention must trace.)
"""

import warnings
from contextlib import contextmanager

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from kernels.cases import calls, recorded

from regard.attention import Alibi, Attention, Causal, Dot, Heads, Lengths, Monotonic, use_backend
from regard.errors import BackendError


@contextmanager
def quiet():
    """FlexAttention rightly warns that it is not fused without compilation."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        yield


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=calls(torch.float32))
def test_flex_equals_dense_forward(drawn):
    """Run eagerly on a CPU, where it has no gradients."""
    attention, inputs, span = drawn.build()
    inputs = [x.detach() for x in inputs]
    with torch.no_grad(), use_backend("dense"):
        expected = attention(*inputs, span=span)
    with torch.no_grad(), use_backend("flex"), recorded() as ran, quiet():
        try:
            found = attention(*inputs, span=span)
        except BackendError:
            assert not ran
            return
    assert ran == ["flex"]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("span", [Alibi(3), Alibi(3) & Causal(), Alibi(3, start=4) & Lengths([2, 7])])
@pytest.mark.parametrize("name", ["sdpa", "flex"])
def test_alibi_equals_dense(name, span):
    heads, x = Heads(12, heads=3), torch.randn(2, 7, 12)
    with torch.no_grad(), use_backend("dense"):
        expected = heads(x, span=span)
    with torch.no_grad(), use_backend(name), recorded() as ran, quiet():
        torch.testing.assert_close(heads(x, span=span), expected, rtol=1e-5, atol=1e-5)
    assert ran == [name]


def test_gradients_on_a_cpu_are_refused():
    x = torch.randn(2, 7, 4, requires_grad=True)
    with use_backend("flex"), pytest.raises(BackendError, match="no backward pass on a CPU"):
        Attention(Dot())(x, x)


def test_a_block_mask_of_sizes_alone_is_built_once():
    from regard.kernels.operations import dot as flex

    flex.fixed_blocks.cache_clear()
    x = torch.randn(2, 7, 4)
    with torch.no_grad(), use_backend("flex"), quiet():
        for _ in range(3):
            Attention(Dot())(x, x, span=Monotonic(2))
    assert flex.fixed_blocks.cache_info().misses == 1
    assert flex.fixed_blocks.cache_info().hits == 2


def test_starts_that_differ_by_row_are_refused():
    heads, x = Heads(12, heads=3), torch.randn(2, 7, 12)
    with torch.no_grad(), use_backend("flex"), pytest.raises(BackendError, match="from one start a row"):
        heads(x, span=Alibi(3, start=torch.tensor([1, 4])))
