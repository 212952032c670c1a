"""Encoder and Decoder against the loop of Vaswani et al., section 3.1, pre and post norm; and stepping."""

import copy
import pickle

import oracles
import pytest
import torch
from attention.cases import normal, number, scrambled
from attention.test_block import block_by_loop
from oracles import agree
from torch import nn

from regard.attention import Block, Decoder, Encoder
from regard.attention.span import Causal, Lengths, Mask, Monotonic, Packed


def last_norm(module):
    """Return the norm after a pre-norm stack, or None if all norms are inside its blocks."""
    inside = {id(part) for block in module.blocks for part in block.modules()}
    found = [part for part in module.modules() if isinstance(part, nn.LayerNorm) and id(part) not in inside]
    assert len(found) <= 1
    return found[0] if found else None


def after_stack(module, x):
    norm = last_norm(module)
    return x if norm is None else oracles.per_vector(oracles.layer_norm(norm.weight, norm.bias, norm.eps), x)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_equals_the_loop(norm):
    encoder, x = scrambled(Encoder(4, 2, 2, hidden=5, norm=norm)), normal(2, 3, 4)
    lengths, expected = torch.tensor([3, 2]), x
    for block in encoder.blocks:
        expected = block_by_loop(block, expected, heads=2, norm=norm, span=oracles.lengths(lengths))
    agree(encoder(x, span=Lengths(lengths)), after_stack(encoder, expected), [x, *encoder.parameters()], rtol=1e-8)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_decoder_equals_the_loop_and_is_causal_by_itself(norm):
    decoder, x, memory = scrambled(Decoder(4, 2, 2, hidden=5, norm=norm)), normal(2, 3, 4), normal(2, 5, 4)
    lengths, expected = torch.tensor([5, 2]), x
    for block in decoder.blocks:
        expected = block_by_loop(
            block,
            expected,
            heads=2,
            norm=norm,
            span=oracles.causal(),
            memory=memory,
            memory_span=oracles.lengths(lengths),
        )
    actual = decoder(x, memory, memory_span=Lengths(lengths))
    agree(actual, after_stack(decoder, expected), [x, memory, *decoder.parameters()], rtol=1e-8)


def test_a_pre_norm_stack_ends_with_a_norm_and_a_post_norm_stack_does_not():
    """Otherwise the sum of all residuals would leave the stack without a norm, or be normalised twice."""
    for build in (Encoder, Decoder):
        assert last_norm(build(4, 2, 2, norm="pre")) is not None
        assert last_norm(build(4, 2, 2, norm="post")) is None


# --- properties -----------------------------------------------------------------------------------------------------


def test_an_encoder_without_positions_follows_the_order_of_its_input():
    encoder, x, order = scrambled(Encoder(6, 2, 2)), normal(2, 7, 6), torch.randperm(7)
    agree(encoder(x[:, order]), encoder(x)[:, order], [x], rtol=1e-8)


@pytest.mark.parametrize("what", ["causal", "rotary"])
def test_positions_break_it(what):
    encoder = scrambled(Encoder(8, 2, 2, rotary=what == "rotary"))
    span, x, order = Causal() if what == "causal" else None, normal(1, 7, 8), torch.arange(7).roll(3)
    assert not torch.allclose(encoder(x[:, order], span=span), encoder(x, span=span)[:, order])


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("inside", [None, Causal(), Monotonic(1)])
def test_padding_never_changes_an_encoder(rotary, inside):
    encoder, length = scrambled(Encoder(8, 2, 2, rotary=rotary)), number(1, 5)
    x, garbage = normal(length, 8), torch.full((4, 8), 1e4, dtype=torch.float64, requires_grad=True)
    lengths = Lengths(torch.tensor(length))
    alone = encoder(x, span=inside)
    actual = encoder(torch.cat([x, garbage]), span=lengths if inside is None else lengths & inside)[:length]
    agree(actual, alone, [x, *encoder.parameters()], rtol=1e-8)
    assert not oracles.gradients(actual, [garbage], torch.randn_like(actual))[0].any()


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("inside", [None, Causal(), Monotonic(1)])
def test_a_packed_encoder_equals_a_padded_one(rotary, inside):
    encoder = scrambled(Encoder(8, 2, 2, rotary=rotary))
    sequences = [normal(length, 8) for length in (3, 1, 5)]
    packed = Packed([0, 3, 4, 9])
    actual = encoder(torch.cat(sequences), span=packed if inside is None else packed & inside)
    expected = torch.cat([encoder(x, span=inside) for x in sequences])
    agree(actual, expected, [*sequences, *encoder.parameters()], rtol=1e-8)


@pytest.mark.parametrize("rotary", [False, True])
def test_a_packed_decoder_equals_a_padded_one(rotary):
    decoder = scrambled(Decoder(8, 2, 2, rotary=rotary))
    targets, memories = ([normal(length, 8) for length in lengths] for lengths in ((2, 4, 1), (3, 1, 5)))
    actual = decoder(
        torch.cat(targets),
        torch.cat(memories),
        span=Packed([0, 2, 6, 7]),
        memory_span=Packed([0, 2, 6, 7], [0, 3, 4, 9]),
    )
    expected = torch.cat([decoder(x, memory) for x, memory in zip(targets, memories, strict=True)])
    agree(actual, expected, [*targets, *memories, *decoder.parameters()], rtol=1e-8)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("rotary", [False, True])
def test_stepping_equals_the_decoder(norm, rotary):
    decoder = scrambled(Decoder(8, 2, 3, norm=norm, rotary=rotary)).eval()
    x, memory, lengths = normal(2, 6, 8), normal(2, 5, 8), Lengths([2, 5])
    expected = decoder(x, memory, memory_span=lengths)
    with torch.no_grad():
        state = decoder.start(memory, 6, memory_span=lengths)
        steps = [decoder.step(x[:, i : i + 1], state) for i in range(6)]
    agree(torch.cat(steps, dim=1), expected.detach(), rtol=1e-8)


def test_stepping_several_at_once_equals_the_decoder():
    decoder, x, memory = scrambled(Decoder(8, 2, 2, rotary=True)).eval(), normal(2, 6, 8), normal(2, 4, 8)
    with torch.no_grad():
        state = decoder.start(memory, 9)
        steps = [decoder.step(part, state) for part in x.split([3, 1, 2], dim=1)]
        agree(torch.cat(steps, dim=1), decoder(x, memory), rtol=1e-8)


def test_rows_of_a_decoder_may_be_at_different_steps():
    """One row's past is emptied and starts again while the other row continues."""
    decoder, x, memory = scrambled(Decoder(8, 2, 2, rotary=True)).eval(), normal(2, 6, 8), normal(2, 4, 8)
    with torch.no_grad():
        state = decoder.start(memory, 9)
        for i in range(3):
            decoder.step(x[:, i : i + 1], state)
        state.put_(torch.tensor([1]), decoder.start(memory[1:], 9))
        assert state.row["past.0"].length.tolist() == [3, 0]
        steps = [decoder.step(torch.stack([x[0, 3 + i : 4 + i], x[1, i : i + 1]]), state) for i in range(3)]
        expected = decoder(x, memory)
        agree(torch.cat(steps, dim=1), torch.stack([expected[0, 3:], expected[1, :3]]), rtol=1e-8)


def test_stepping_over_a_masked_memory_equals_the_decoder():
    decoder = scrambled(Decoder(8, 2, 2)).eval()
    x, memory, span = normal(2, 4, 8), normal(2, 5, 8), Mask(torch.rand(2, 1, 5) < 0.7)
    with torch.no_grad():
        state = decoder.start(memory, 4, memory_span=span)
        steps = [decoder.step(x[:, i : i + 1], state) for i in range(4)]
        agree(torch.cat(steps, dim=1), decoder(x, memory, memory_span=span), rtol=1e-8)


def test_dropout_only_in_training():
    encoder, x = scrambled(Encoder(6, 2, 2, dropout=0.5)), normal(2, 4, 6)
    assert not torch.equal(encoder.train()(x), encoder(x))
    assert torch.equal(encoder.eval()(x), encoder(x))


MODULES = {
    "block": lambda: Block(8, 2, hidden=9),
    "encoder": lambda: Encoder(8, 2, 2, norm="post"),
    "rotary": lambda: Encoder(8, 2, 2, rotary=True),
    "decoder": lambda: Decoder(8, 2, 2),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "pickle"])
def test_kept_and_loaded_it_is_the_same(name, way):
    one, x = scrambled(MODULES[name]()).eval(), [normal(2, 5, 8) for _ in range(2 if name == "decoder" else 1)]
    if way == "state_dict":
        other = MODULES[name]().double().eval()
        other.load_state_dict(one.state_dict(), strict=True)
    else:
        other = copy.deepcopy(one) if way == "deepcopy" else pickle.loads(pickle.dumps(one))
    agree(other(*x), one(*x))


def test_steps_do_not_grow_a_graph():
    decoder = Decoder(8, heads=2, layers=1)
    state = decoder.start(torch.randn(2, 3, 8), 5)
    for _ in range(3):
        decoder.step(torch.randn(2, 1, 8), state)
    assert not state.row["past.0"].keys.requires_grad


@pytest.mark.parametrize("options", [{"norm": "none"}, {"residual": False}, {"feed_forward": False}])
def test_a_bare_stack_steps_as_it_reads(options):
    """Without norm, residual or feed-forward nets, decoding step by step equals decoding all steps at once."""
    decoder = scrambled(Decoder(8, 2, 2, hidden=12, **options)).eval()
    x, memory = normal(2, 4, 8), normal(2, 5, 8)
    state = decoder.start(memory, 4)
    steps = [decoder.step(x[:, i : i + 1], state) for i in range(4)]
    agree(torch.cat(steps, 1), decoder(x, memory))
