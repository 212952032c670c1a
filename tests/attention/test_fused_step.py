"""A decoder's fused step: equal to the blocks for every caller and every replaced part."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from regard.attention import Decoder, Heads, Lengths, Mask, Rotary, use_backend
from regard.attention.fused_step import NAME, ROWS, FusedStep, find_step

OPTIONS = [
    {},
    {"rotary": True},
    {"norm": "post", "rotary": True},
    {"norm": "none", "feed_forward": False},
    {"residual": False, "norm": "post"},
    {"depth": 6, "rotary": True, "activation": "gelu"},
    {"activation": "silu", "dropout": 0.3, "attention_dropout": 0.2},
]


def make(size=12, heads=2, layers=2, dtype=torch.float32, **options):
    decoder = Decoder(size, heads, layers, 20, **options).eval().to(dtype)
    for parameter in decoder.parameters():  # biases and norms too
        nn.init.normal_(parameter, std=0.4)
    return decoder


def steps(decoder, x, memory, lengths=None, size=None):
    """Run every position step by step; return the outputs and the names of the functions that computed them."""
    span = None if lengths is None else Lengths(lengths)
    outputs, names = [], []
    with torch.inference_mode():
        state = decoder.start(memory, size or x.shape[1], span)
        for t in range(x.shape[1]):
            outputs.append(decoder.step(x[:, t : t + 1], state))
            names.append("fused" if isinstance(state.fused, FusedStep) else "block by block")
    return torch.cat(outputs, 1), set(names)


def forward(decoder, x, memory, lengths=None):
    with torch.inference_mode():
        return decoder(x, memory, memory_span=None if lengths is None else Lengths(lengths))


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda each: "-".join(each) or "defaults")
@pytest.mark.parametrize("rows", [1, 3, ROWS])
def test_it_computes_what_the_blocks_do(options, rows):
    decoder = make(dtype=torch.float64, **options)
    x, memory, lengths = (
        torch.randn(rows, 7, 12).double(),
        torch.randn(rows, 5, 12).double(),
        torch.randint(1, 6, (rows,)),
    )
    for given in (None, lengths):
        output, names = steps(decoder, x, memory, given)
        assert names == {"fused"}
        torch.testing.assert_close(output, forward(decoder, x, memory, given), rtol=1e-10, atol=1e-10)


def test_weights_that_may_be_packed():
    decoder = Decoder(256, 4, 1, 2048, rotary=True).eval()
    x, memory = torch.randn(3, 3, 256), torch.randn(3, 4, 256)
    close(steps(decoder, x, memory)[0], forward(decoder, x, memory))


@pytest.mark.parametrize("rows", [2, 5, 10])
def test_a_beam_that_forks(rows):
    """Rows descend from each other at random; each gives the same result as with a past of its own."""
    decoder, memory = make(rotary=True), torch.randn(1, 5, 12)
    x, descent = torch.randn(6, rows, 12), torch.randint(0, rows, (6, rows))
    with torch.inference_mode():
        state = decoder.start(memory, 8)
        decoder.step(x[:1, :1], state)
        state = state.repeat_rows(rows)
        pasts = [[x[0, 0]] for _ in range(rows)]
        for t in range(1, 6):
            output = decoder.step(x[t][:, None], state)
            assert isinstance(state.fused, FusedStep)
            pasts = [[*past, x[t, r]] for r, past in enumerate(pasts)]
            whole = torch.stack([torch.stack(past) for past in pasts])
            close(output[:, 0], decoder(whole, memory.expand(rows, -1, -1))[:, -1])
            state.select_(descent[t])
            pasts = [list(pasts[i]) for i in descent[t].tolist()]


def test_rows_that_are_not_equally_far():
    decoder, memory, x = make(rotary=True), torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    with torch.inference_mode():
        ahead, behind = (decoder.start(memory[i : i + 1], 7) for i in range(2))
        for t in range(3):
            decoder.step(x[:1, t : t + 1], ahead)
        decoder.step(x[1:, :1], behind)
        state = ahead.join(behind, 4)
        places = torch.tensor([3, 1])
        for _ in range(3):
            output = decoder.step(x[torch.arange(2), places][:, None], state)
            assert isinstance(state.fused, FusedStep)
            whole = decoder(x, memory)
            close(output[:, 0], whole[torch.arange(2), places])
            places += 1
        close(decoder.step(x[:1, 6:], state.take(torch.tensor([0])))[:, 0], whole[:1, 6])


# ---- steps that the blocks have to compute


def is_left_to_the_blocks(decoder, rows=1, memory_span=None):
    x, memory = torch.randn(rows, 1, 12), torch.randn(rows, 3, 12)
    with torch.inference_mode():
        state = decoder.start(memory, 4, memory_span)
        assert torch.isfinite(decoder.step(x, state)).all()
        return find_step(decoder, x, state, None) is None


class Averaging(nn.Module):
    """A replacement for heads with the same prepare and attend methods."""

    def __init__(self):
        super().__init__()
        self.heads = Heads(12, 2)

    def cache(self, rows, size):
        return self.heads.cache(rows, size)

    def prepare(self, x, start=0):
        return self.heads.prepare(x, start)

    def forward(self, x, past, span=None, start=0):
        return self.heads(x, past, span=span, start=start) / 2


def own_feed(decoder):
    decoder.blocks[1].feed = nn.Sequential(nn.Linear(12, 12), nn.Tanh())


def own_norm(decoder):
    decoder.blocks[0].cross_norm = nn.RMSNorm(12)


def own_projection(decoder):
    decoder.blocks[0].attention.query = nn.Linear(12, 12)


def own_heads(decoder):
    decoder.blocks[0].attention = Averaging()


@pytest.mark.parametrize("change", [own_feed, own_norm, own_projection, own_heads, nn.Module.train])
def test_what_it_does_not_know_it_leaves_to_the_blocks(change):
    decoder = make()
    assert not is_left_to_the_blocks(decoder)
    change(decoder)
    assert is_left_to_the_blocks(decoder)


def test_what_is_around_it_may_leave_it_to_the_blocks():
    assert is_left_to_the_blocks(make(), rows=ROWS + 1)
    assert is_left_to_the_blocks(make(), memory_span=Lengths(torch.tensor([0])))
    assert is_left_to_the_blocks(make(), memory_span=Mask(torch.zeros(1, 1, 3, dtype=torch.bool)))
    with use_backend("dense"):
        assert is_left_to_the_blocks(make())


class Backwards(Rotary):
    def rotate(self, x, table):
        return super().rotate(x, (-table[0], table[1]))


def own_forward(decoder):
    first = decoder.blocks[0].feed[0]
    first.forward = lambda x: 2 * type(first).forward(first, x)


def own_rotary(decoder):
    decoder.blocks[1].attention.rotary = Backwards(6)


def own_query(decoder):
    decoder.blocks[0].cross.attention.score.project_query = lambda query: 3 * query


def one_block(decoder):
    decoder.blocks[1].has_residual = False


@pytest.mark.parametrize("change", [own_forward, own_rotary, own_query, one_block])
@pytest.mark.parametrize("used", [False, True])
def test_what_somebody_sets_on_a_part_is_computed_by_the_blocks(change, used):
    decoder, x, memory = make(rotary=True), torch.randn(2, 4, 12), torch.randn(2, 3, 12)
    before = forward(decoder, x, memory)
    if used:
        assert steps(decoder, x, memory)[1] == {"fused"}
    change(decoder)
    output, names = steps(decoder, x, memory)
    assert names == {"block by block"}
    assert not torch.allclose(output, before)
    close(output, forward(decoder, x, memory))


def test_gradients_are_the_blocks():
    decoder, x = make(), torch.randn(1, 1, 12, requires_grad=True)
    decoder.step(x, decoder.start(torch.randn(1, 3, 12), 2)).sum().backward()
    assert x.grad is not None


def test_who_begins_to_listen_is_called_from_the_next_step_on():
    decoder, x, memory = make(), torch.randn(1, 6, 12), torch.randn(1, 3, 12)
    heard = []
    with torch.inference_mode():
        state, outputs = decoder.start(memory, 6), []
        for t in range(6):
            if t == 2:
                hook = decoder.blocks[1].feed[0].register_forward_hook(lambda *_: heard.append(len(outputs)))
            if t == 4:
                hook.remove()
            outputs.append(decoder.step(x[:, t : t + 1], state))
    assert heard == [2, 3]
    close(torch.cat(outputs, 1), forward(decoder, x, memory))


# ---- replaced parts


def assign(decoder):
    decoder.blocks[0].feed = copy.deepcopy(decoder.blocks[1].feed)


def put_into_sequential(decoder):
    decoder.blocks[0].feed[2] = copy.deepcopy(decoder.blocks[1].feed[2])


def assign_weight(decoder):
    decoder.blocks[1].cross.output.weight = nn.Parameter(torch.randn(12, 12))


def load(decoder):
    weights = {name: torch.randn_like(tensor) for name, tensor in decoder.state_dict().items()}
    decoder.load_state_dict(weights, assign=True)


def set_scale(decoder):
    decoder.blocks[0].attention.attention.score.scaled = False


def set_temperature(decoder):
    decoder.blocks[0].cross.attention.weighting.temperature = 0.5


def set_residual(decoder):
    for block in decoder.blocks:
        block.has_residual = False


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.7))

    def forward(self, weight):
        return weight * self.factor


def adapt(decoder):
    parametrize.register_parametrization(decoder.blocks[0].attention.output, "weight", Scaled())


def train_adapter(decoder):
    adapt(decoder)
    steps(decoder, torch.randn(1, 2, 12), torch.randn(1, 3, 12))
    with torch.no_grad():
        decoder.blocks[0].attention.output.parametrizations.weight[0].factor.fill_(-1.3)


def write_in_place(decoder):
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.mul_(-0.8)


@pytest.mark.parametrize(
    "change",
    [
        assign, put_into_sequential, assign_weight, load, set_scale, set_temperature, set_residual, adapt,
        train_adapter, write_in_place,
    ],
)  # fmt: skip
def test_what_is_replaced_is_looked_up_anew(change):
    decoder, x, memory = make(rotary=True), torch.randn(2, 4, 12), torch.randn(2, 3, 12)
    before, _ = steps(decoder, x, memory)
    change(decoder)
    output, names = steps(decoder, x, memory)
    assert names == {"fused"}
    assert not torch.allclose(output, before)
    close(output, forward(decoder, x, memory))


def test_another_dtype():
    decoder, x, memory = make(), torch.randn(2, 4, 12), torch.randn(2, 3, 12)
    steps(decoder, x, memory)
    output, names = steps(decoder.double(), x.double(), memory.double())
    assert names == {"fused"}
    torch.testing.assert_close(output, forward(decoder, x.double(), memory.double()), rtol=1e-12, atol=1e-12)
    output, names = steps(decoder.half(), x.half(), memory.half())
    assert names == {"block by block"}


def test_a_decoder_is_copied_and_pickled_without_it():
    decoder, x, memory = make(), torch.randn(1, 3, 12), torch.randn(1, 3, 12)
    expected, _ = steps(decoder, x, memory)
    for other in (copy.deepcopy(decoder), pickle.loads(pickle.dumps(decoder))):
        assert vars(other)[NAME] is None
        close(steps(other, x, memory)[0], expected)


def test_a_decoder_that_nobody_needs_is_freed():
    decoder = make()
    steps(decoder, torch.randn(1, 3, 12), torch.randn(1, 3, 12))
    gone = weakref.ref(decoder)
    del decoder
    gc.collect()
    assert gone() is None
