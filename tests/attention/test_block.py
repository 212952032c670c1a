"""Block against the loop of Vaswani et al., section 3.1, pre and post norm."""

import oracles
import pytest
import torch
from attention.cases import normal, scrambled
from attention.test_heads import by_loop as heads_by_loop
from oracles import agree
from torch import nn

from regard.attention import Block, Decoder, Encoder
from regard.attention.block import GELUDropout, MixingBlock, ReLUDropout, SiLUDropout
from regard.attention.span import Causal, Lengths
from regard.errors import ArgumentError


def norms_of(block):
    """Return oracles of the layer norms, in the order of their sublayers."""
    found = [part for part in block.modules() if isinstance(part, nn.LayerNorm)]
    return [oracles.layer_norm(part.weight, part.bias, part.eps) for part in found]


def feed_forward_of(block, activation="relu"):
    """Return the two linear layers outside attention, in order."""
    inside = {id(p) for name in ("attention", "cross") for p in (getattr(block, name, None) or nn.Module()).modules()}
    inner, outer = (part for part in block.modules() if isinstance(part, nn.Linear) and id(part) not in inside)
    return oracles.feed_forward(*(oracles.linear(part.weight, part.bias) for part in (inner, outer)), activation)


def block_by_loop(
    block,
    x,
    *,
    heads,
    norm,
    span=oracles.everywhere,
    memory=None,
    memory_span=oracles.everywhere,
    activation="relu",
):
    norms = norms_of(block)
    x = oracles.residual(
        x, lambda y: heads_by_loop(block.attention, y, heads=heads, span=span).context, norms.pop(0), norm
    )
    if memory is not None:
        x = oracles.residual(
            x,
            lambda y: heads_by_loop(block.cross, y, memory, heads=heads, span=memory_span).context,
            norms.pop(0),
            norm,
        )
    feed = feed_forward_of(block, activation)
    (last,) = norms
    return oracles.residual(x, lambda y: oracles.per_vector(feed, y), last, norm)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_equals_the_loop(norm):
    block, x = scrambled(Block(6, 2, hidden=9, norm=norm)), normal(2, 4, 6)
    expected = block_by_loop(block, x, heads=2, norm=norm, span=oracles.lengths(torch.tensor([3, 4])))
    agree(block(x, span=Lengths([3, 4])), expected, [x, *block.parameters()])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_with_cross_attention_equals_the_loop(norm):
    block, x, memory = scrambled(Block(6, 2, hidden=9, norm=norm, cross=True)), normal(2, 3, 6), normal(2, 5, 6)
    lengths = torch.tensor([2, 5])
    expected = block_by_loop(
        block, x, heads=2, norm=norm, span=oracles.causal(), memory=memory, memory_span=oracles.lengths(lengths)
    )
    actual = block(x, memory, span=Causal(), memory_span=Lengths(lengths))
    agree(actual, expected, [x, memory, *block.parameters()])


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_the_activation_is_its_formula(activation):
    """Check the activation in a block with cross-attention, and in the blocks that stacks and mixing blocks build."""
    block, x, memory = (
        scrambled(Block(6, 2, hidden=9, cross=True, activation=activation)),
        normal(1, 3, 6),
        normal(1, 2, 6),
    )
    expected = block_by_loop(block, x, heads=2, norm="pre", span=oracles.causal(), memory=memory, activation=activation)
    agree(block(x, memory, span=Causal()), expected, [x, memory, *block.parameters()])
    kind = {"relu": ReLUDropout, "gelu": GELUDropout, "silu": SiLUDropout}[activation]
    options = {"activation": activation, "feed_dropout": 0.25}
    encoder, decoder = Encoder(6, 2, 2, **options), Decoder(6, 2, 2, **options)
    mixed = Encoder(6, 2, 1, mixing=lambda: nn.Linear(6, 6), **options)
    for each in (*encoder.blocks, *decoder.blocks, *mixed.blocks, MixingBlock(6, nn.Identity(), **options)):
        assert type(each.feed[1]) is kind
        assert each.feed[1].dropout == 0.25
    assert sorted(encoder.state_dict()) == sorted(Encoder(6, 2, 2).state_dict())


@pytest.mark.unchecked
@pytest.mark.parametrize("build", [Block, lambda *sizes, **options: MixingBlock(6, nn.Identity(), **options)])
def test_an_activation_that_is_none_is_refused(build):
    with pytest.raises(ArgumentError, match="activation: 'tanh' given, expected 'relu', 'gelu' or 'silu'"):
        build(6, 2, activation="tanh")


def test_the_hidden_layer_is_four_times_as_wide_by_default():
    """Vaswani et al., section 3.3: 2048 for 512."""
    assert 24 in {part.out_features for part in Block(6, 2).modules() if isinstance(part, nn.Linear)}


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("feed_forward", [True, False])
def test_what_stands_beside_attention_can_be_taken_away(norm, residual, feed_forward):
    """Test each switch alone and combined, part by part against its definition, with cross-attention."""
    options = {"norm": norm, "residual": residual, "feed_forward": feed_forward}
    block = scrambled(Block(6, 2, hidden=9, cross=True, **options))
    x, memory = normal(2, 3, 6), normal(2, 5, 6)
    assert sum(isinstance(part, nn.LayerNorm) for part in block.modules()) == (
        0 if norm == "none" else 2 + feed_forward
    )
    parts = [
        (lambda y: heads_by_loop(block.attention, y, heads=2, span=oracles.causal()).context, block.attention_norm),
        (lambda y: heads_by_loop(block.cross, y, memory, heads=2).context, block.cross_norm),
    ]
    if feed_forward:
        feed = feed_forward_of(block)
        parts.append((lambda y: oracles.per_vector(feed, y), block.feed_norm))
    expected = x
    for part, module in parts:
        f = oracles.layer_norm(module.weight, module.bias, module.eps) if norm != "none" else lambda y: y
        made = part(oracles.per_vector(f, expected) if norm == "pre" else expected)
        made = expected + made if residual else made
        expected = oracles.per_vector(f, made) if norm == "post" else made
    agree(block(x, memory, span=Causal()), expected, [x, memory, *block.parameters()])
