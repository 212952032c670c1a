"""The Neural Turing Machine against its formulas, place by place; the stages of its heads; that it learns to copy."""

import dataclasses

import pytest
import torch
from models import formulas
from models.cases import SOURCES, TARGETS, fit, model_of, ntm, pair, row, sentences
from oracles import agree, cosine, softmax

from regard.data import END, collate
from regard.decoding import GREEDY, search
from regard.models.contract import Tokens
from regard.models.kinds import build
from regard.models.ntm import Machine, MemoryHeads, sharpen_weights, shift_weights
from regard.training import Prediction

CASES = ["ntm", "ntm-feedforward-two-heads", "ntm-fed"]


class Turing:
    """Section 3 of the paper, one place and one head at a time; parameters are read from the model."""

    def __init__(self, model, fault=None):
        self.model, self.config, self.fault = model, model.config, fault
        config = self.config
        zero = torch.zeros((), dtype=torch.float64)
        self.memory = [torch.full((config.width,), 1e-6, dtype=torch.float64) for _ in range(config.slots)]
        self.weights = [[zero + (i == 0) for i in range(config.slots)] for _ in range(2 * config.heads)]
        self.reads = list(model.first_reads)
        self.state = list(model.first_state) if config.controller == "lstm" else []

    def control(self, x):
        x = torch.cat([x, *self.reads])
        if self.config.controller == "feedforward":
            return torch.tanh(self.model.controller.net.weight @ x + self.model.controller.net.bias)
        self.state = formulas.cell(self.model.controller, x, self.state)
        return self.state[0]

    def address(self, k, beta, g, s, gamma, before):
        """Equations 5 to 9; s[0] is the weight of the largest forward shift."""
        count, most = self.config.slots, self.config.shift
        content = softmax(torch.stack([cosine(beta)(k, place, 0) for place in self.memory]))
        gated = [g * c + (1 - g) * w for c, w in zip(content, before, strict=True)]
        amounts = dict(zip(range(most, -most - 1, -1), softmax(s), strict=True))
        if self.fault == "no circle":
            gated = [*gated, *[0 * g] * most]
        shifted = [sum(gated[(i - by) % len(gated)] * a for by, a in amounts.items()) for i in range(count)]
        powers = [w**gamma for w in shifted]
        return [power / sum(powers) for power in powers]

    def turn(self, x):
        config, width, shifts = self.config, self.config.width, 2 * self.config.shift + 1
        hidden = self.control(x)
        said = list((self.model.heads.steer.weight @ hidden + self.model.heads.steer.bias).unbind())

        def take(count):
            taken, said[:] = torch.stack(said[:count]), said[count:]
            return taken

        weights = []
        for before in self.weights:
            k, beta, g, s, gamma = (take(count) for count in (width, 1, 1, shifts, 1))
            parts = k, torch.log(1 + torch.exp(beta[0])), torch.sigmoid(g[0]), s, 1 + torch.log(1 + torch.exp(gamma[0]))
            weights.append(self.address(*parts, before))
        self.weights = weights
        erases = [torch.sigmoid(take(width)) for _ in range(config.heads)]
        adds = [take(width) for _ in range(config.heads)]
        assert not said
        writing = weights[config.heads :]
        old = self.memory
        self.memory = []
        for i, place in enumerate(old):
            for w, e in zip(writing, erases, strict=True):
                place = place * (1 - w[i] * e)
            for w, a in zip(writing, adds, strict=True):
                place = place + w[i] * a
            self.memory.append(place)
        shown = old if self.fault == "read before it is written" else self.memory
        self.reads = [sum(w[i] * shown[i] for i in range(config.slots)) for w in weights[: config.heads]]
        return torch.cat([hidden, *self.reads])


def by_sentence(model, source, target, fault=None):
    logits = []
    for index in range(len(source.ids)):
        machine = Turing(model, fault)
        for word in [*row(source, index).ids[0].tolist(), END]:
            machine.turn(model.source.weight[word])
        for word in row(target, index).ids[0].tolist():
            x = model.target.weight[word] if model.config.feed else model.silence
            logits.append(model.readout.weight @ machine.turn(x) + model.readout.bias)
    return torch.stack(logits)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_papers_formulas(name):
    model, (source, target) = model_of(name), pair()
    agree(model(source, target)[target.real], by_sentence(model, source, target), model.parameters())


@pytest.mark.parametrize("fault", ["no circle", "read before it is written"])
def test_the_formulas_tell_a_fault(fault):
    model, (source, target) = model_of("ntm"), pair()
    with torch.no_grad(), pytest.raises(AssertionError):
        agree(model(source, target)[target.real], by_sentence(model, source, target, fault))


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_weights_are_distributions_at_every_step(name):
    model, (source, target) = model_of(name), pair()
    state = model.start(model.encode(source), rows=2)
    for tokens in target.ids.unbind(1):
        model.step(tokens.repeat_interleave(2), state)
        weights = state.row["weights"]
        assert (weights >= 0).all()
        agree(weights.sum(-1), torch.ones(weights.shape[:2], dtype=torch.float64))


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_only_a_machine_that_is_fed_reads_what_was_said(name):
    model, (source, target) = model_of(name), pair()
    other = sentences(TARGETS, target.lengths.tolist())
    other.ids[:] = (target.ids + 1) % TARGETS
    same = torch.equal(model(source, target)[target.real], model(source, other)[target.real])
    assert same == (name != "ntm-fed")


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_under_autocast_the_machine_runs_whole(name):
    model, (source, target) = model_of(name).float(), pair()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        memory = model.encode(source)
        half = model.output(model.decode(memory, target)[0])
    assert {part.dtype for part in memory.sentence.values()} == {torch.float32}
    torch.testing.assert_close(half[target.real].float(), model(source, target)[target.real], rtol=0.1, atol=0.1)


@torch.no_grad()
def test_a_memory_of_one_place_of_one_number():
    model = build("ntm", dataclasses.replace(ntm(), slots=1, width=1, shift=0), SOURCES, TARGETS).double().eval()
    source, target = sentences(SOURCES, [1, 3]), sentences(TARGETS, [2, 1])
    agree(model(source, target)[target.real], by_sentence(model, source, target))


# ---- heads: the stages of their addressing, and the vectors that they erase, add and read


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
    """Check the wrap-around at the end of the memory too."""
    config = ntm(slots=7, heads=1)
    heads = heads_of(config).double()
    where = torch.zeros(7, 2, heads.place, dtype=torch.float64)
    where[..., config.width + 1] = -1000.0  # g
    where[..., config.width + 2 + index] = 1000.0  # s
    weights = torch.eye(7, dtype=torch.float64)[:, None].expand(-1, 2, -1)  # row i is at place i
    machine = Machine(torch.randn(7, 7, config.width).double(), weights, *torch.zeros(2, 7, 1, 1).double())
    agree(heads.address(where, machine), weights.roll(by, -1))


def alike(memory):
    """Return the largest cosine of two of the memory's rows."""
    rows = torch.nn.functional.normalize(memory[0], dim=-1)
    return (rows @ rows.mT - 2 * torch.eye(len(rows), dtype=rows.dtype)).max()


def test_with_the_gate_open_a_head_is_where_its_key_is():
    config = ntm(slots=7, shift=0)
    heads = heads_of(config).double()
    memory = torch.randn(1, 7, config.width, dtype=torch.float64)
    while alike(memory) > 0.95:  # β = 1000 would not separate them
        memory = torch.randn(1, 7, config.width, dtype=torch.float64)
    where = torch.zeros(1, 2, heads.place, dtype=torch.float64)
    where[..., : config.width] = 3 * memory[:, [5, 2]]  # a key's length does not matter
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
    agree(even, torch.full((1, 1, 128), 1 / 128, dtype=dtype), **close)  # each to the power of 100 underflows


def test_weights_of_nothing_have_finite_gradients():
    weights, power = torch.eye(5)[None].requires_grad_(), torch.full((1, 5, 1), 1.5, requires_grad=True)
    sharpen_weights(weights, power)[..., 0].sum().backward()
    assert weights.grad.isfinite().all()
    assert power.grad.isfinite().all()


def heads_that_write(erase: float, add: float) -> tuple[MemoryHeads, Machine]:
    """Return two heads that are at places 1 and 2 for any controller output."""
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


# ---- learning


def copies(model, longest: int, steps: int, symbols: int) -> list[float]:
    """Train on sequences of up to `longest`; return the accuracy at that length, and at twice that length."""

    def drawn(count: int, shortest: int, longest: int) -> list[tuple[list[int], list[int]]]:
        lengths = torch.randint(shortest, longest + 1, (count,)).tolist()
        return [(words, words) for words in (torch.randint(4, 4 + symbols, (n,)).tolist() for n in lengths)]

    objective = Prediction(model)

    def loss():
        result = objective(collate(drawn(24, 1, longest)))
        return result.total / result.parts["tokens"]

    fit(model, loss, steps, 1e-2, clip=1.0)
    right = []
    for length in (longest, 2 * longest):
        pairs = drawn(50, length, length)
        batch = collate(pairs)
        found = search(model, Tokens.of(batch.source, batch.source_lengths), GREEDY)
        said = [each.outputs[0].tokens for each in found]
        right.append(sum(one == wanted for one, (_, wanted) in zip(said, pairs, strict=True)) / len(pairs))
    return right


@pytest.mark.unchecked
def test_learns_to_copy_and_goes_on_to_twice_the_length():
    """At least one of three machines must succeed: which do depends on the initial parameters."""
    options = {"controller": "feedforward", "size": 32, "embedding": 16, "slots": 10, "width": 12, "dropout": 0.0}
    seen = []
    for seed in (1, 6, 4):
        torch.manual_seed(seed)
        seen.append(copies(build("ntm", ntm(**options), 10, 10), 4, 150, 6))
        if min(seen[-1]) > 0.9:
            return
    raise AssertionError(f"right at lengths 4 and 8: {seen}")
