"""Every backend that claims a combination equals dense, forward and gradients; one that cannot serve says why."""

import math
import threading
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from kernels.cases import TOLERANCE, calls, evaluate, recorded

from regard.attention import Attention, use_backend
from regard.attention.score import Additive, Cosine, Dot, General, Location
from regard.attention.span import Causal, Lengths, Mask, Monotonic, Packed, Predictive
from regard.attention.weighting import Gumbel, Hard, Plain, Sparsemax
from regard.errors import ArgumentError, BackendError
from regard.kernels.additive import chunked
from regard.kernels.window import cpu as window_cpu


@pytest.mark.parametrize("name", ["sdpa", "window", "chunked"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=calls(torch.float64, torch.float32, torch.bfloat16))
def test_a_backend_equals_dense_or_says_why_not(name, drawn):
    attention, inputs, span = drawn.build()
    cotangent = torch.randn_like(attention(*inputs, span=span))
    with use_backend("dense"), recorded() as ran:
        expected = evaluate(attention, inputs, span, cotangent)
    assert ran == ["dense"]
    small = mock.patch.object(chunked, "CHUNK", 64)  # several chunks, of queries and of rows
    with use_backend(name), recorded() as ran, small, mock.patch.object(window_cpu, "MANY", 8):
        try:
            found = evaluate(attention, inputs, span, cotangent)
        except BackendError:
            assert not ran
            return
        assert attention.backend(*inputs, span=span) == name
    assert ran == [name]
    tolerance = TOLERANCE[inputs[0].dtype]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(
            one, other, rtol=tolerance, atol=tolerance * max(1.0, float(other.detach().abs().max()))
        )


TABLE = {
    "scaled dot": (Attention(Dot(scaled=True)), None, "sdpa"),
    "general, causal": (Attention(General(8, 8)), Causal(), "sdpa"),
    "cosine, lengths": (Attention(Cosine()), Lengths([3, 200]), "sdpa"),
    "dot, a mask": (Attention(Dot()), Mask(torch.ones(200, 200, dtype=torch.bool)), "sdpa"),
    "local-m": (Attention(Dot()), Monotonic(10), "window"),
    "local-p": (Attention(General(8, 8), span=Predictive(8, 10)), Lengths([200, 50]), "window"),
    "additive local-p": (Attention(Additive(8, 8, hidden=16), span=Predictive(8, 10)), None, "window"),
    "a window not much smaller than the sentence": (Attention(Dot()), Monotonic(25), "sdpa"),
    "the same predicted": (Attention(Dot(), span=Predictive(8, 25)), None, "window"),
    "a window as wide as the sentence": (Attention(Dot()), Monotonic(150), "sdpa"),
    "additive": (Attention(Additive(8, 8, hidden=16)), Lengths([200, 7]), "chunked"),
    "additive, sparsemax": (Attention(Additive(8, 8, hidden=16), weighting=Sparsemax()), None, "chunked"),
    "location": (Attention(Location(8, 200)), None, "dense"),
    "hard": (Attention(Dot(), weighting=Hard()), None, "dense"),
    "gumbel": (Attention(Dot(), weighting=Gumbel()), None, "dense"),
    "plain": (Attention(Dot(), weighting=Plain()), None, "dense"),
}


@pytest.mark.parametrize("row", TABLE)
def test_the_table_says_who_serves_what_on_a_cpu(row):
    attention, span, name = TABLE[row]
    x = torch.randn(2, 200, 8)
    assert attention.backend(x, x, x, span=span) == name
    with recorded() as ran:
        attention(x, x, x, span=span)
    assert ran == [name]


def test_a_small_additive_call_is_plain():
    x = torch.randn(1, 3, 8)
    assert Attention(Additive(8, 8, hidden=16)).backend(x, x) == "dense"


def test_packed_goes_through_padding_on_a_cpu():
    x, attention, packed = torch.randn(37, 4), Attention(Dot()), Packed([0, 17, 37])
    assert attention.backend(x, x, span=packed) == "sdpa"
    with use_backend("dense"):
        assert attention.backend(x, x, span=packed) == "dense"
    with use_backend("varlen"), pytest.raises(BackendError, match="varlen.*CUDA"):
        attention(x, x, span=packed)


def test_a_few_queries_are_served_by_two_products():
    attention, keys, values = Attention(Dot(scaled=True)), torch.randn(3, 9, 8), torch.randn(3, 9, 5)
    for count, served in ((1, "sdpa"), (2, "few"), (16, "few"), (17, "sdpa")):
        query = torch.randn(3, count, 8)
        for span in (None, Lengths([9, 4, 0]), Mask(torch.rand(3, count, 9) < 0.5)):
            assert attention.backend(query, keys, values, span=span) == served
            with use_backend("dense"):
                wanted = attention(query, keys, values, span=span)
            torch.testing.assert_close(attention(query, keys, values, span=span), wanted)
        assert attention.backend(query.requires_grad_(), keys, values) == "sdpa"  # a gradient wants the fused one
    # Values may have rows that queries and keys have not.
    found = attention(torch.randn(4, 8), torch.randn(6, 8), torch.randn(3, 6, 5), span=Lengths([1, 2, 3]))
    assert found.shape == (3, 4, 5)


def test_a_forced_backend_ends_with_its_block_and_stays_in_its_thread():
    x, attention = torch.randn(1, 30, 8), Attention(Dot())
    elsewhere = []
    with use_backend("dense"):
        with use_backend("sdpa"):
            assert attention.backend(x, x) == "sdpa"
        assert attention.backend(x, x) == "dense"
        thread = threading.Thread(target=lambda: elsewhere.append(attention.backend(x, x)))
        thread.start()
        thread.join()
    assert elsewhere == ["sdpa"]
    with pytest.raises(RuntimeError), use_backend("dense"):
        raise RuntimeError
    assert attention.backend(x, x) == "sdpa"


def test_an_unknown_backend_is_named():
    with (
        pytest.raises(ArgumentError, match="'fast' is not a backend; choose one of .*varlen, flex"),
        use_backend("fast"),
    ):
        pass


@pytest.mark.parametrize("weighting", [Hard(), Sparsemax(), Plain()])
def test_a_forced_backend_never_falls_back(weighting):
    x = torch.randn(1, 3, 8)
    with use_backend("sdpa"), recorded() as ran, pytest.raises(BackendError, match=f"not {weighting.name}"):
        Attention(Dot(), weighting=weighting)(x, x)
    assert not ran


@pytest.mark.parametrize("name", ["dense", "sdpa", "window"])
def test_dropout_falls_on_weights_that_are_not_renormalised(name):
    """With values of one, a context is the sum of the dropped weights: 1 on average, with the variance of the draw."""
    torch.manual_seed(0)
    keys, p = 100, 0.3
    attention = Attention(Dot(), dropout=p)
    query, values = torch.zeros(2000, 1, 4), torch.ones(2000, keys, 1)
    span = Monotonic(keys) if name == "window" else None
    with use_backend(name):
        sums = attention(query, torch.zeros(2000, keys, 4), values, span=span).flatten()
        whole = attention.eval()(query, torch.zeros(2000, keys, 4), values, span=span).flatten()
    torch.testing.assert_close(whole, torch.ones(2000))
    deviation = math.sqrt(p / (1 - p) / keys)
    assert abs(float(sums.mean()) - 1) < 5 * deviation / math.sqrt(2000)
    assert abs(float(sums.std()) / deviation - 1) < 0.15
