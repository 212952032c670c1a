"""Arguments of torch's fused attention: four dimensions, a mask that leaves no row empty, kernels in order."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn.attention import SDPBackend

from regard.attention import Attention, Causal, Dot, Packed, Softmax, use_backend
from regard.kernels import reference
from regard.kernels.operations import dot as sdpa
from regard.kernels.operations.dot import takes_scale, varlen_arguments
from regard.kernels.reference import Call, softmax
from regard.kernels.span_limits import SpanLimits


def make(n=5, m=7, d=4, dv=3, **limits):
    query, keys, values = torch.randn(2, n, d).double(), torch.randn(2, m, d).double(), torch.randn(2, m, dv).double()
    limited = SpanLimits(n, m, torch.device("cpu"), (2,), **limits)
    return Call(
        query, keys, values, limited,
        lambda q, k: reference.bilinear_scores(q, k, 0.5), lambda e, mask: softmax(e, mask, 2.0),
        scale=0.5, temperature=2.0,
    )  # fmt: skip


def test_a_row_without_keys_is_shown_all_of_them():
    mask, some = sdpa.merge_mask(make(lengths=torch.tensor([7, 0]), min_length=None).limits, 2.0, torch.float64)
    assert mask[1].all()
    assert some.flatten().tolist() == [True, False]
    assert sdpa.merge_mask(make(lengths=torch.tensor([7, 2]), min_length=2).limits, 2.0, torch.float64)[1] is None


def test_a_bias_is_divided_by_the_temperature_and_stays_finite():
    bias = torch.full((5, 7), -1e9)
    bias[:, 2] = 3.0
    mask, _ = sdpa.merge_mask(make(biases=(bias,)).limits, 2.0, torch.float16)
    assert mask.dtype == torch.float16
    assert (mask[:, 2] == 0).all()  # each row's largest is subtracted
    assert (mask[:, [0, 1, 3, 4, 5, 6]] == torch.finfo(torch.float16).min).all()
    mask, _ = sdpa.merge_mask(make(biases=(torch.ones(5, 7),)).limits, 2.0, torch.float32)
    assert (mask == 0.5).all()


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4), (2, 3, 5, 4), (2, 3, 6, 5, 4)])
def test_four_dimensions(shape):
    found = sdpa.to_four_dimensions(torch.zeros(shape))
    assert found.ndim == 4
    assert found.shape[-2:] == (5, 4)
    assert found.numel() == torch.zeros(shape).numel()


FLASH_LAST = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
CUDNN_FIRST = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def test_the_order_of_kernels_on_cuda():
    assert sdpa.kernel_order(make(m=129), masked=False) == CUDNN_FIRST
    assert sdpa.kernel_order(make(m=128), masked=False) == FLASH_LAST
    assert sdpa.kernel_order(make(m=129), masked=True) == FLASH_LAST
    assert sdpa.kernel_order(make(m=129, d=257), masked=False) == FLASH_LAST
    assert sdpa.kernel_order(make(m=129, dv=257), masked=False) == FLASH_LAST
    assert sdpa.kernel_order(make(m=129, d=256, dv=256), masked=False) == CUDNN_FIRST


def test_causality_is_a_flag_only_where_nothing_else_is(monkeypatch):
    given = []

    def look(*tensors, **options):
        given.append(options)
        return real(*tensors, **options)

    real = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(sdpa.F, "scaled_dot_product_attention", look)
    for limits in ({"causal": 0}, {"causal": 0, "lengths": torch.tensor([7, 3])}, {"causal": 1}, {}):
        sdpa.attend(make(**limits))
    assert [each["is_causal"] for each in given] == [True, False, False, False]
    assert [each["attn_mask"] is None for each in given] == [True, False, False, True]
    sdpa.attend(replace(make(), dropout=0.25))
    assert given[-1]["dropout_p"] == 0.25
    assert given[-1]["scale"] == 0.25


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_large_bias_in_half_precision_loses_nothing_near_its_maximum(dtype):
    """With all keys far away, as in linear biases late in a text, the rounded bias gives the exact weights."""
    slope, far = 0.25, 300 - torch.arange(7.0)
    bias = (-slope * (far + torch.arange(5.0)[:, None])).double()
    call = make(biases=(bias.requires_grad_(),), lengths=torch.tensor([7, 4]))
    mask, _ = sdpa.merge_mask(call.limits, call.temperature, dtype)
    exact, _ = sdpa.merge_mask(call.limits, call.temperature, torch.float64)
    assert mask.dtype == dtype
    weights = mask.double().softmax(-1)
    torch.testing.assert_close(weights, exact.softmax(-1), rtol=0, atol=2e-3)
    (gradient,) = torch.autograd.grad((weights[..., 0] ** 2).sum(), bias)
    (expected,) = torch.autograd.grad((exact.softmax(-1)[..., 0] ** 2).sum(), bias)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=2e-3)


def test_a_bias_out_of_range_stays_finite_in_half_precision():
    bias = torch.tensor([[0.0, -1e9, float("-inf")], [-1e9, -1e9, float("-inf")]]).double()
    call = make(2, 3, biases=(bias,))
    mask, _ = sdpa.merge_mask(call.limits, call.temperature, torch.float16)
    assert not mask.isnan().any()
    torch.testing.assert_close(mask.double().softmax(-1)[1], torch.tensor([0.5, 0.5, 0.0]).double())


# ---- arguments of torch's varlen_attn: a loop over the sequences with it equals the requested attention


def stand_in(query, keys, values, offsets, key_offsets, longest, longest_key, *, window_size, scale=None):
    """varlen_attn as documented, on any device: [t a d], causal by a window of (-1, 0)."""
    assert offsets.dtype == key_offsets.dtype == torch.int32
    contexts = []
    for (a, b), (c, d) in zip(pairwise(offsets.tolist()), pairwise(key_offsets.tolist()), strict=True):
        assert b - a <= longest
        assert d - c <= longest_key
        scores = torch.einsum("iad,jad->aij", query[a:b], keys[c:d])
        scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
        if window_size == (-1, 0):
            scores = scores.masked_fill(torch.ones(b - a, d - c).tril() == 0, -torch.inf)
        contexts.append(torch.einsum("aij,jad->iad", scores.softmax(-1), values[c:d]))
    return torch.cat(contexts)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("heads", [0, 3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("score", [Dot(), Dot(scaled=True)])
def test_it_is_given_what_was_asked_for(scaled, heads, causal, score):
    attention = Attention(score, weighting=Softmax(0.7))
    lead = (heads,) if heads else ()
    query, keys = torch.randn(*lead, 12, 4).double(), torch.randn(*lead, 12 if causal else 9, 4).double()
    packed = Packed([0, 5, 12]) if causal else Packed([0, 5, 12], [0, 7, 9])
    rest = [Causal()] if causal else []
    call = attention.resolve_packed_call(query, attention.prepare(keys), packed, rest)
    inputs, options = varlen_arguments(call, scaled)
    assert ("scale" in options) == scaled
    found = stand_in(*inputs, **options)
    found = found.transpose(0, 1) if heads else found.squeeze(1)
    span = packed & rest[0] if causal else packed
    for head in range(heads or 1):
        one, other = (query[head], keys[head]) if heads else (query, keys)
        with use_backend("dense"):
            torch.testing.assert_close(found[head] if heads else found, attention(one, other, span=span))


def test_torch_can_be_told_the_scale():
    assert takes_scale() in (True, False)
