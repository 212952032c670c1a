"""Local windows: the three ways to compute them agree with the reference, each where the others do not apply."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import agree

from regard.attention import Additive, Attention, Causal, General, Lengths, Monotonic, Predictive
from regard.kernels import reference
from regard.kernels.operations import window as cpu

SPANS = {
    "local-m": Monotonic(4),
    "local-m, later": Monotonic(3, start=50) & Lengths([90, 0, 41]),
    "local-m, before": Monotonic(6, start=-20),
    "local-m, causal": Monotonic(5) & Causal(),
    "local-m, rows apart": Monotonic(2, start=torch.tensor([0, 40, 95])) & Causal(torch.tensor([3, 39, 200])),
    "local-p": Predictive(6, 4),
    "local-p, lengths": Predictive(6, 9) & Lengths([100, 1, 37]),
}


WAYS = {"tiled": cpu.attend_in_tiles, "gathered": cpu.attend_gathering, "bucketed": cpu.attend_in_buckets}


def calls(span, score=None, n=100, m=100):
    """Return a call in float64, with centres drawn over the whole sentence."""
    attention = Attention(score or General(6, 6)).double()
    for part in span.parts:
        if isinstance(part, torch.nn.Module):
            part.double()
            torch.nn.init.normal_(part.v, std=3.0)
    inputs = [torch.randn(3, count, 6, dtype=torch.float64, requires_grad=True) for count in (n, m, m)]
    prepared = attention.prepare(inputs[1], inputs[2])
    return inputs, attention.resolve_call(
        attention.score.project_query(inputs[0]), prepared, inputs[0], span, heads=False
    )


MOVING = ["local-m", "local-m, later", "local-m, before", "local-m, causal"]  # one start for all rows: tiles


COMBINATIONS = [(name, way) for name in SPANS for way in WAYS if way != "tiled" or name in MOVING]


@pytest.mark.parametrize(("name", "way"), COMBINATIONS)
def test_every_way_equals_the_reference_with_gradients(name, way):
    inputs, call = calls(SPANS[name])
    flat = cpu.flatten_call(call, (3,))
    agree(WAYS[way](flat), reference.attend(call), inputs, rtol=1e-11, atol=1e-11)


def test_which_way_is_taken():
    def way(span, score=None, n=100):
        return cpu.choose_way(cpu.flatten_call(calls(span, score, n)[1], (3,)))

    assert way(Monotonic(4)) is cpu.attend_in_tiles
    assert way(Predictive(6, 4)) is cpu.attend_in_buckets
    assert way(Predictive(6, 4), n=1) is cpu.attend_gathering
    assert way(Monotonic(4, start=7), n=1) is cpu.attend_gathering
    assert way(Monotonic(4), Additive(6, 6, hidden=5)) is cpu.attend_gathering


@pytest.mark.parametrize("budget", [1, 1300, 1 << 30])
@pytest.mark.parametrize("name", SPANS)
def test_some_rows_at_a_time_are_all_rows(monkeypatch, name, budget):
    monkeypatch.setattr(cpu, "BUDGET", budget)
    _, call = calls(SPANS[name])
    parts = list(cpu.split_rows(cpu.flatten_call(call, (3,))))
    assert len(parts) == (1 if budget > 1300 else 3)
    torch.testing.assert_close(cpu.attend(call), reference.attend(call), rtol=1e-11, atol=1e-11)


def test_an_additive_vector_a_head():
    """Rows are sentences times heads; each takes its own head's vector."""
    torch.manual_seed(3)
    vector = torch.randn(2, 5, dtype=torch.float64)
    _, call = calls(Monotonic(4), Additive(6, 6, hidden=5), n=30, m=30)
    shape = (3, 2, 30, 5)
    query, keys = (torch.randn(shape, dtype=torch.float64) for _ in range(2))
    values = torch.randn(3, 2, 30, 6, dtype=torch.float64)
    heads = replace(call, query=query, keys=keys, values=values, vector=vector, limits=call.limits.over_heads())
    found = cpu.attend(heads)
    for head in range(2):
        hidden = torch.tanh(query[:, head, :, None] + keys[:, head, None])
        scores = hidden @ vector[head]
        weights = reference.softmax(scores, call.limits.mask())
        torch.testing.assert_close(found[:, head], weights @ values[:, head])


# ---- queries sorted into groups of one bucket each


@given(st.lists(st.integers(0, 9), min_size=1, max_size=300))
def test_sorting_into_groups(buckets):
    """Every query has its own slot in a group of its bucket, with the fewest possible groups."""
    given_buckets = torch.tensor(buckets)
    slot, bucket = cpu.sort_into_groups(given_buckets, 10)
    assert len(set(slot.tolist())) == len(buckets)
    assert torch.equal(bucket[slot // cpu.GROUP], given_buckets)
    assert len(bucket) == sum(-(-buckets.count(one) // cpu.GROUP) for one in range(10))
