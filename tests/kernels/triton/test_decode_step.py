"""Kernels of a decoding step: a few queries over their keys, one query over its line of the cache."""

import math
from types import SimpleNamespace

import interpreted  # noqa: F401
import pytest
import torch
from kernels.cases import call_of

from regard.kernels.reference import attend

step = pytest.importorskip("regard.kernels.triton.decode_step")

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")  # interpreted
SCALE = 0.37
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=DEVICE, dtype=torch.float32).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if CUDA else [torch.float32])
@pytest.mark.parametrize(("n", "m", "d", "dv"), [(1, 1, 16, 16), (1, 33, 24, 40), (5, 7, 16, 16), (16, 70, 8, 20)])
def test_a_few_queries_are_the_reference(n, m, d, dv, dtype):
    s, a = 3, 2
    query = normal(s, n, a, d, dtype=dtype).transpose(1, 2)  # as projections return them
    keys, values = normal(s, m, a, d, dtype=dtype).transpose(1, 2), normal(s, a, m, dv, dtype=dtype)
    for lengths in (None, torch.tensor([[m], [0], [max(1, m - 3)]], device=DEVICE)):
        found = step.attend(call_of(query, keys, values, scale=SCALE, lengths=lengths))
        wide = (x.double() for x in (query, keys, values))
        expected = attend(call_of(*wide, scale=SCALE, lengths=lengths))
        torch.testing.assert_close(found.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        if lengths is not None:
            assert not found[1].any()  # no keys to look at


def test_what_is_not_there_is_not_read():
    query, keys, values = normal(2, 1, 3, 8), normal(2, 1, 9, 8), normal(2, 1, 9, 8)
    lengths = torch.tensor([[4], [9]], device=DEVICE)
    before = step.attend(call_of(query, keys, values, scale=SCALE, lengths=lengths))
    keys[0, :, 4:], values[0, :, 4:] = torch.nan, torch.inf
    assert torch.equal(step.attend(call_of(query, keys, values, scale=SCALE, lengths=lengths)), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if CUDA else [torch.float32])
@pytest.mark.parametrize(("d", "dv", "size"), [(16, 16, 5), (12, 20, 40)])
def test_following_is_looking_at_ones_own_past(d, dv, size, dtype):
    """The test keeps each row's past as a list, and reorders it by hand as the beam is."""
    rows, heads, scale = 6, 2, 1 / math.sqrt(d)
    keys, values = (torch.full((rows, heads, size, w), torch.nan, device=DEVICE, dtype=dtype) for w in (d, dv))
    line = torch.full((rows, size), -7, dtype=torch.int32, device=DEVICE)
    length = torch.zeros(rows, dtype=torch.long, device=DEVICE)
    length[3] = 1  # rows may be at different steps
    keys[3, :, 0], values[3, :, 0], line[3, 0] = 0.5, -0.5, 3
    pasts = [([], []) for _ in range(rows)]
    pasts[3] = ([torch.full((heads, d), 0.5)], [torch.full((heads, dv), -0.5)])
    for _ in range(4):
        qkv = normal(rows, heads * (2 * d + dv), dtype=dtype)
        query, key, value = (
            x.unflatten(1, (heads, -1))[:, :, None] for x in qkv.split((heads * d, heads * d, heads * dv), 1)
        )
        found = step.follow(query, key, value, keys, values, line, length, scale)
        assert found.shape == (rows, heads, 1, dv)
        length += 1
        for row, (past_keys, past_values) in enumerate(pasts):
            past_keys.append(key[row, :, 0].cpu().float())
            past_values.append(value[row, :, 0].cpu().float())
            k, v = torch.stack(past_keys, 1).double(), torch.stack(past_values, 1).double()
            weights = (scale * query[row].cpu().double() @ k.mT).softmax(-1)
            expected = weights @ v
            torch.testing.assert_close(
                found[row].cpu().double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
            )
        chosen = torch.tensor([0, 0, 2, 3, 5, 4], device=DEVICE)
        line.copy_(line[chosen])
        pasts = [(list(pasts[i][0]), list(pasts[i][1])) for i in chosen.tolist()]


def test_a_full_row_writes_over_its_last_place():
    """Finished rows keep stepping with the others of a graph, and must not write into their neighbours' rows."""
    keys, values = (torch.zeros(2, 1, 3, 8, device=DEVICE) for _ in range(2))
    line = torch.tensor([[0, 0, 0], [1, 1, 1]], dtype=torch.int32, device=DEVICE)
    length = torch.tensor([7, 1], device=DEVICE)
    new = normal(2, 1, 1, 8)
    step.follow(new, new, new, keys, values, line, length, 1.0)
    assert torch.equal(keys[0, 0, 2], new[0, 0, 0])
    assert not keys[0, 0, :2].any()
    assert torch.equal(keys[1, 0, 1], new[1, 0, 0])
    assert not keys[1, 0, [0, 2]].any()


def test_nothing_to_do():
    empty = SimpleNamespace(query=normal(0, 2, 1, 8), keys=normal(0, 2, 3, 8), values=normal(0, 2, 3, 8))
    assert step.attend(call_of(empty.query, empty.keys, empty.values, scale=SCALE)).shape == (0, 2, 1, 8)
