"""Heads of a memory: the stages of their addressing, and what they erase, add and read."""

import pytest
import torch
from models.cases import ntm
from oracles import agree

from regard.models.ntm import Machine, MemoryHeads, sharpen_weights, shift_weights


def heads_of(config) -> MemoryHeads:
    return MemoryHeads(config.size, heads=config.heads, width=config.width, shift=config.shift)


def distribution(*shape):
    return torch.softmax(2 * torch.randn(*shape, dtype=torch.float64), -1)


@pytest.mark.parametrize(("slots", "most"), [(1, 0), (3, 1), (7, 3), (8, 2), (63, 1)])
def test_moving_is_a_convolution_round_the_circle(slots, most):
    weights, shifts = distribution(2, 3, slots), distribution(2, 3, 2 * most + 1)
    got = shift_weights(weights, shifts)
    wanted = torch.zeros_like(weights)
    for place in range(slots):
        for index, by in enumerate(range(most, -most - 1, -1)):
            wanted[..., place] += weights[..., (place - by) % slots] * shifts[..., index]
    agree(got, wanted)
    agree(got.sum(-1), torch.ones(2, 3, dtype=torch.float64))


@pytest.mark.parametrize(("index", "by"), [(0, 1), (1, 0), (2, -1)])
def test_with_the_gate_shut_a_head_moves_by_exactly_one_place(index, by):
    """Round the end of the memory too."""
    config = ntm(slots=7, heads=1)
    heads = heads_of(config).double()
    where = torch.zeros(7, 2, heads.place, dtype=torch.float64)
    where[..., config.width + 1] = -1000.0  # g
    where[..., config.width + 2 + index] = 1000.0  # s
    weights = torch.eye(7, dtype=torch.float64)[:, None].expand(-1, 2, -1)  # row i stands at place i
    machine = Machine(torch.randn(7, 7, config.width).double(), weights, *torch.zeros(2, 7, 1, 1).double())
    agree(heads.address(where, machine), weights.roll(by, -1))


def alike(memory):
    """The largest cosine of two of its rows."""
    rows = torch.nn.functional.normalize(memory[0], dim=-1)
    return (rows @ rows.mT - 2 * torch.eye(len(rows), dtype=rows.dtype)).max()


def test_with_the_gate_open_a_head_is_where_its_key_is():
    config = ntm(slots=7, shift=0)
    heads = heads_of(config).double()
    memory = torch.randn(1, 7, config.width, dtype=torch.float64)
    while alike(memory) > 0.95:  # then β = 1000 would not tell them apart
        memory = torch.randn(1, 7, config.width, dtype=torch.float64)
    where = torch.zeros(1, 2, heads.place, dtype=torch.float64)
    where[..., : config.width] = 3 * memory[:, [5, 2]]  # a key's length does not count
    where[..., config.width : config.width + 2] = 1000.0  # β and g
    machine = Machine(memory, torch.full((1, 2, 7), 1 / 7).double(), *torch.zeros(2, 1, 1, 1).double())
    agree(heads.address(where, machine), torch.eye(7, dtype=torch.float64)[None, [5, 2]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sharpening(dtype):
    weights = distribution(2, 3, 63).to(dtype)
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {}
    ones = torch.ones(2, 3, 1, dtype=dtype)
    agree(sharpen_weights(weights, ones), weights, **close)
    powers = weights**2.5
    agree(sharpen_weights(weights, 2.5 * ones), powers / powers.sum(-1, keepdim=True), **close)
    sharp = sharpen_weights(weights, 1e4 * ones)
    assert (sharp.argmax(-1) == weights.argmax(-1)).all()
    even = sharpen_weights(torch.full((1, 1, 128), 1 / 128, dtype=dtype), 100 * ones[:1, :1])
    agree(even, torch.full((1, 1, 128), 1 / 128, dtype=dtype), **close)  # of which each to the 100th is zero


def test_weights_of_nothing_have_finite_gradients():
    weights, power = torch.eye(5)[None].requires_grad_(), torch.full((1, 5, 1), 1.5, requires_grad=True)
    sharpen_weights(weights, power)[..., 0].sum().backward()
    assert weights.grad.isfinite().all()
    assert power.grad.isfinite().all()


def heads_that_write(erase: float, add: float) -> tuple[MemoryHeads, Machine]:
    """Two heads, at places 1 and 2 whatever the controller says."""
    config = ntm(slots=5, heads=2)
    heads = heads_of(config).double()
    with torch.no_grad():
        heads.steer.weight.zero_()
        where, what = heads.steer.bias.split([4 * heads.place, 4 * config.width])
        where.view(4, -1)[:, config.width + 1] = -1000.0
        where.view(4, -1)[:, config.width + 3] = 1000.0
        what[: 2 * config.width], what[2 * config.width :] = erase, add
    places = torch.eye(5, dtype=torch.float64)[None, [1, 2, 1, 2]]
    return heads, Machine(torch.randn(1, 5, 4).double(), places, *torch.zeros(2, 1, 1, 1).double())


@torch.no_grad()
@pytest.mark.parametrize(("erase", "add", "left"), [(1000.0, 0.25, 0.0), (-1000.0, 0.25, 1.0), (0.0, 0.0, 0.5)])
def test_what_is_erased_is_gone_and_what_is_added_is_read(erase, add, left):
    heads, machine = heads_that_write(erase, add)
    memory, weights, reads = heads(torch.zeros(1, 5).double(), machine)
    wanted = machine.memory.clone()
    wanted[:, 1:3] = left * wanted[:, 1:3] + add
    agree(memory, wanted)
    agree(weights, machine.weights)
    agree(reads, wanted[:, 1:3])


@torch.no_grad()
def test_two_heads_at_one_place_erase_and_add_both():
    heads, machine = heads_that_write(0.0, 0.25)
    machine = machine._replace(weights=machine.weights[:, [0, 0, 0, 0]])
    memory, *_ = heads(torch.zeros(1, 5).double(), machine)
    agree(memory[:, 1], 0.25 * machine.memory[:, 1] + 0.5)
