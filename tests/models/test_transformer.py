"""The Transformer against the paper's formulas, written out; test_contract.py tests its shared behaviour."""

import math

import oracles
import pytest
import torch
from attention.test_block import feed_forward_of, norms_of
from attention.test_heads import by_loop
from models.formulas import SINES

from regard.attention import Dot
from regard.data import END, START
from regard.errors import ArgumentError
from regard.models.contract import Tokens
from regard.models.kinds import build, read_model_config


def small(**options):
    table = {
        "kind": "transformer",
        "size": 8,
        "heads": 2,
        "layers": 2,
        "decoder_layers": 1,
        "hidden": 10,
        "dropout": 0.0,
    }
    model = build("transformer", read_model_config({**table, **options}), 9, 9).double()
    with torch.no_grad():  # norms and biases away from one and zero
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def stack(blocks, x, memory=None, *, span=oracles.everywhere, activation="relu", score=oracles.scaled):
    """Run block after block: self-attention, attention to the memory if there is one, and the feed-forward net."""
    for block in blocks.blocks:
        feed = feed_forward_of(block, activation)
        parts = [lambda y, each=block.attention: by_loop(each, y, heads=2, span=span, score=score).context]
        if memory is not None:
            parts.append(lambda y, each=block.cross: by_loop(each, y, memory, heads=2, score=score).context)
        parts.append(lambda y, feed=feed: oracles.per_vector(feed, y))
        for part, norm in zip(parts, norms_of(block), strict=True):
            x = oracles.residual(x, part, norm, block.norm)
    last = blocks.final_norm
    if isinstance(last, torch.nn.Identity):
        return x
    return oracles.per_vector(oracles.layer_norm(last.weight, last.bias, last.eps), x)


def embed(embedding, ids, join, sines="interleaved", scale=True):
    x = embedding.tokens.weight[ids]
    position = torch.stack([SINES[sines](t, x.shape[1]) for t in range(len(ids))])
    x = x * (math.sqrt(x.shape[1]) if scale else 1)
    if join == "add":
        return x + position
    return torch.cat([x, position], -1) @ embedding.mix.weight.T + embedding.mix.bias


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    "options",
    [
        {"tied": "all"},
        {"join": "concatenate", "tied": "none"},
        {"tied": "output"},
        {"scaled": False},
        {"depth": 3},
        {"depth": 7, "scaled": False},
        {"activation": "gelu", "sines": "halves"},
        {"activation": "silu", "sines": "fairseq"},
        {"scale_embeddings": False, "tied": "all"},
        {"output_bias": False, "tied": "none"},
    ],
    ids=str,
)
def test_it_is_the_papers_formula(norm, options):
    """Compare the forward and every gradient."""
    model, join = small(norm=norm, **options), options.get("join", "add")
    source, target = torch.randint(4, 9, (5,)), torch.randint(4, 9, (4,))
    form = join, options.get("sines", "interleaved"), options.get("scale_embeddings", True)
    each = {
        "activation": options.get("activation", "relu"),
        "score": oracles.scaled if options.get("scaled", True) else oracles.dot,
    }
    memory = stack(model.encoder, embed(model.source, source, *form), **each)
    hidden = stack(model.decoder, embed(model.target, target, *form), memory, span=oracles.causal(), **each)
    expected = hidden @ model.readout.weight.T
    assert (model.readout.bias is not None) == options.get("output_bias", True)
    if model.readout.bias is not None:
        expected = expected + model.readout.bias
    found = model(Tokens.of(source[None], torch.tensor([5])), Tokens.of(target[None], torch.tensor([4])))[0]
    oracles.agree(found, expected, model.parameters())


def test_a_target_may_begin_with_the_end():
    """START's embedding is then never looked up, and END's gets the gradient of both."""
    model = small(start_as_end=True, fixed_bias=True, tied="none")
    source = Tokens.of(torch.randint(4, 9, (2, 5)), torch.tensor([5, 3]))
    target = torch.randint(4, 9, (2, 4))
    found, expected = (
        model(source, Tokens.of(torch.cat([torch.full((2, 1), first), target], 1), torch.tensor([5, 5])))
        for first in (START, END)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    found.sum().backward()
    assert not model.target.tokens.weight.grad[START].any()
    assert model.target.tokens.weight.grad[END].any()
    assert not model.readout.bias.requires_grad
    memory = model.encode(source)
    states = [model.step(torch.full((2,), first), model.start(memory))[0] for first in (START, END)]
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_base_has_as_many_parameters_as_the_paper_says():
    """Table 3: 65 million with a joint vocabulary of 37,000 pieces."""
    with torch.device("meta"):
        model = build(
            "transformer", read_model_config({"kind": "transformer", "preset": "base", "tied": "all"}), 37_000, 37_000
        )
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(65, rel=0.03)


def test_depth_is_the_width_of_queries_and_keys_alone():
    heads = small(depth=3).decoder.blocks[0].cross
    assert (heads.query_size, heads.value_size, heads.width) == (6, 8, 3)
    assert heads.projection.weight.shape == (6 + 6 + 8, 8)


def test_heads_that_see_a_slice_start_with_the_spread_of_their_own_matrix():
    """Glorot and Bengio's limit is that of a 32 by 32 matrix, for any number of heads."""
    table = {"kind": "transformer", "size": 256, "heads": 8, "layers": 1, "split": "input"}
    weight = build("transformer", read_model_config(table), 9, 9).encoder.blocks[0].attention.query.weight
    assert weight.shape == (8, 32, 32)
    assert weight.std().item() == pytest.approx(math.sqrt(2 / 64), rel=0.05)
    assert weight.abs().max().item() <= math.sqrt(6 / 64)


def test_unscaled_dot_products_are_served_by_the_kernels_of_scaled_ones():
    heads = small(scaled=False).encoder.blocks[0].attention
    assert type(heads.attention.score) is Dot
    assert not heads.attention.score.scaled
    x = torch.randn(2, 40, 8, dtype=torch.float64)
    assert heads.backend(x) == small().encoder.blocks[0].attention.backend(x)


def test_sentences_end_to_end_where_a_kernel_takes_them():
    """Other models pad once before the batch reaches the GPU, not again in every attention."""
    assert small().packs
    assert small(scaled=False, split="input").packs
    assert small(heads=1, size=256).packs
    for options in (
        {"depth": 3},
        {"score": "additive"},
        {"positions": "alibi"},
        {"heads": 1, "size": 256, "attention_dropout": 0.1},
        {"heads": 1, "size": 512},
    ):
        assert not small(**options).packs


def test_what_is_tied_is_one_tensor():
    model = small(tied="all")
    assert model.readout.weight is model.source.tokens.weight is model.target.tokens.weight
    assert small(tied="output").source.tokens.weight is not small(tied="output").target.tokens.weight
    with pytest.raises(ArgumentError, match="one vocabulary, not 9 and 8"):
        build("transformer", read_model_config({"kind": "transformer", "preset": "tiny", "tied": "all"}), 9, 8)
