"""Encoders of any sort for a recurrent decoder: which one is made, what is refused, and that each learns to align.

That each equals its formulas is asked in the tests of the models that have them, and padding in `test_contract`.
"""

import pytest
import torch
from models.cases import SOURCES, TARGETS, luong, rnnsearch, sentences
from oracles import agree

from regard.attention import Block, watch
from regard.errors import ConfigError
from regard.models.kinds import build
from regard.models.layers.cells import Bidirectional, Stack
from regard.models.layers.encoders import BlockEncoder, make_encoder, mean_annotation
from regard.models.layers.mixing import Convolution


@pytest.mark.parametrize("config", [rnnsearch, luong])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("encoder", [None, "rnn", "gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_recurrence_is_of_the_cell_that_is_asked_for(config, cell, encoder, bidirectional):
    options = config(cell=cell, encoder=encoder, bidirectional=bidirectional, size=6, nonlinearity="relu")
    made = make_encoder(options, 6)
    assert type(made) is (Bidirectional if bidirectional else Stack)
    layers = made.layers if isinstance(made, Bidirectional) else made.each
    assert {(layer.kind, layer.nonlinearity) for layer in layers} == {(encoder or cell, "relu")}


@pytest.mark.parametrize("config", [rnnsearch, luong])
def test_blocks_have_the_layers_heads_and_reach_that_are_asked_for(config):
    made = make_encoder(config(encoder="self-attention", size=6, heads=3, layers=2), 6)
    assert isinstance(made, BlockEncoder)
    assert [(type(block), block.attention.heads) for block in made.stack.blocks] == [(Block, 3)] * 2
    for reach, expected in ((None, 1), (4, 4)):
        made = make_encoder(config(encoder="convolution", reach=reach), 5)
        assert [type(block.mixing) for block in made.stack.blocks] == [Convolution]
        assert made.stack.blocks[0].mixing.reach == expected


def test_embeddings_of_the_same_width_are_not_projected():
    assert make_encoder(rnnsearch(encoder="convolution", embedding=5), 5).project is None
    assert make_encoder(rnnsearch(encoder="convolution", embedding=3), 5).project.weight.shape == (5, 3)


@pytest.mark.parametrize("config", [rnnsearch, luong])
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"encoder": "self-attention", "size": 6, "heads": 4}, "heads"),
        ({"reach": 2}, "reach"),
        ({"encoder": "self-attention", "size": 8, "reach": 2}, "reach"),
    ],
)
def test_what_does_not_fit_is_refused(config, options, key):
    with pytest.raises(ConfigError, match=key):
        config(**options)


@pytest.mark.parametrize("key", ["bidirectional", "reverse"])
@pytest.mark.parametrize("encoder", ["convolution", "self-attention"])
def test_blocks_have_no_direction(key, encoder):
    with pytest.raises(ConfigError, match=f"{key}: true given with encoder"):
        luong(encoder=encoder, size=8, **{key: True})


def test_the_mean_leaves_padding_out():
    states = torch.randn(3, 4, 2, dtype=torch.float64)
    states[1, 2:] = torch.nan
    mean = mean_annotation(states, torch.tensor([4, 2, 0]))
    agree(mean, torch.stack([states[0].mean(0), states[1, :2].mean(0), torch.zeros(2, dtype=torch.float64)]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rnnsearch", "luong"])
@pytest.mark.parametrize("encoder", ["rnn", "convolution", "self-attention"])
def test_every_encoder_learns_and_its_attention_aligns(kind, encoder):
    """Copying a sequence of symbols: after some updates the attention looks at the symbol that is written next."""
    torch.manual_seed(1)
    options = {"encoder": encoder, "size": 32, "embedding": 32, "heads": 4, "layers": 1}
    config = (rnnsearch if kind == "rnnsearch" else luong)(
        **options, **({"hidden": 32, "maxout": 32} if kind == "rnnsearch" else {})
    )
    model = build(kind, config, SOURCES, TARGETS)
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(400):
        source = sentences(SOURCES - 1, [6] * 32)
        shifted = sentences(SOURCES, [6] * 32)
        shifted.ids[:, 0], shifted.ids[:, 1:] = TARGETS - 1, source.ids[:, :-1]
        loss = torch.nn.functional.cross_entropy(model(source, shifted).flatten(0, 1), source.ids.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    assert loss < 0.1
    with torch.no_grad(), watch(model) as looks:
        model(source, shifted)
    weights = looks["attention"].weights
    assert (weights.argmax(-1) == torch.arange(6)).float().mean() > 0.8
