"""What torch's varlen_attn is given: a loop over the sequences with it is the attention that was asked for."""

import math
from itertools import pairwise

import pytest
import torch

from regard.attention import Attention, Causal, Dot, Packed, Softmax, use_backend
from regard.kernels.dot.sdpa import takes_scale, varlen_arguments


def stand_in(query, keys, values, offsets, key_offsets, longest, longest_key, *, window_size, scale=None):
    """varlen_attn as it is documented, on any device: [t a d], causal by a window of (-1, 0)."""
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
