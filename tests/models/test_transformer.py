"""The Transformer against the paper's formulas, written out; what it shares with other kinds is in test_contract.py."""

import itertools
import math

import pytest
import torch

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
    with torch.no_grad():  # norms and biases that are not one and zero
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def attend(heads, x, memory, causal=False):
    """MultiHead(Q, K, V) of section 3.2.2, one head and one query at a time."""
    deep, wide = heads.query_size // heads.heads, x.shape[-1] // heads.heads
    scale = math.sqrt(deep) if heads.attention.score.scaled else 1.0
    weight, bias = heads.projection.weight, heads.projection.bias
    cuts = (0, heads.query_size, 2 * heads.query_size, len(weight))
    q, k, v = (
        y @ weight[first:last].T + bias[first:last]
        for y, (first, last) in zip((x, memory, memory), itertools.pairwise(cuts), strict=True)
    )
    rows = []
    for i in range(len(x)):
        parts = []
        for h in range(heads.heads):
            cut, given = slice(h * deep, (h + 1) * deep), slice(h * wide, (h + 1) * wide)
            seen = i + 1 if causal else len(memory)
            weights = torch.softmax(torch.stack([q[i, cut] @ k[j, cut] for j in range(seen)]) / scale, 0)
            parts.append(sum(weights[j] * v[j, given] for j in range(seen)))
        rows.append(torch.cat(parts))
    return torch.stack(rows) @ heads.output.weight.T + heads.output.bias


def normed(norm, x):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias


def activate(name, x):
    if name == "gelu":
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2
    return x.clamp(min=0) if name == "relu" else x / (1 + torch.exp(-x))


def block(block, x, memory=None, *, causal, activation="relu"):
    parts = [(lambda y: attend(block.attention, y, y, causal), block.attention_norm)]
    if memory is not None:
        parts.append((lambda y: attend(block.cross, y, memory), block.cross_norm))
    first, _, second = block.feed

    def feed(y):
        return activate(activation, y @ first.weight.T + first.bias) @ second.weight.T + second.bias

    parts.append((feed, block.feed_norm))
    for part, norm in parts:
        x = x + part(normed(norm, x)) if block.norm == "pre" else normed(norm, x + part(x))
    return x


def stack(stack, x, memory=None, *, causal, activation="relu"):
    for each in stack.blocks:
        x = block(each, x, memory, causal=causal, activation=activation)
    return x if isinstance(stack.final_norm, torch.nn.Identity) else normed(stack.final_norm, x)


def embed(embedding, ids, join, sines="interleaved", scale=True):
    size = embedding.tokens.weight.shape[1]
    position = torch.zeros(len(ids), size, dtype=torch.float64)
    for t in range(len(ids)):
        for i in range(size):
            angle = t / 10000 ** (2 * (i // 2) / size)
            place = i // 2 + i % 2 * (size // 2) if sines == "halves" else i
            if sines == "fairseq":
                angle, place = (t + 2) / 10000 ** (i // 2 / (size // 2 - 1)), i // 2 + i % 2 * (size // 2)
            position[t, place] = math.sin(angle) if i % 2 == 0 else math.cos(angle)
    x = embedding.tokens.weight[ids] * (math.sqrt(size) if scale else 1)
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
    """Forward and every gradient."""
    model, join = small(norm=norm, **options), options.get("join", "add")
    source, target = torch.randint(4, 9, (5,)), torch.randint(4, 9, (4,))
    form = join, options.get("sines", "interleaved"), options.get("scale_embeddings", True)
    activation = options.get("activation", "relu")
    memory = stack(model.encoder, embed(model.source, source, *form), causal=False, activation=activation)
    hidden = stack(model.decoder, embed(model.target, target, *form), memory, causal=True, activation=activation)
    expected = hidden @ model.readout.weight.T
    assert (model.readout.bias is not None) == options.get("output_bias", True)
    if model.readout.bias is not None:
        expected = expected + model.readout.bias
    found = model(Tokens.of(source[None], torch.tensor([5])), Tokens.of(target[None], torch.tensor([4])))[0]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    weight, parameters = torch.randn_like(expected), list(model.parameters())
    ours = torch.autograd.grad((found * weight).sum(), parameters)
    theirs = torch.autograd.grad((expected * weight).sum(), parameters)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_a_target_may_begin_with_the_end():
    """Read so, START's embedding is looked up nowhere, and END's gets the gradient of both."""
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
    """Glorot and Bengio's limit is that of a matrix of 32 by 32, whatever the number of heads."""
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
    """Others are padded before they reach the GPU, and not in every attention again."""
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


def test_coverage_is_what_the_last_block_looked_at():
    model = small()
    source = Tokens.of(torch.randint(4, 9, (2, 5)), torch.tensor([5, 3]))
    state = model.start(model.encode(source), rows=2, size=4, coverage=True)
    plain = model.start(model.encode(source), rows=2, size=4)
    for _ in range(3):
        tokens = torch.randint(4, 9, (4,))
        torch.testing.assert_close(model.step(tokens, state)[0], model.step(tokens, plain)[0])
    torch.testing.assert_close(state.coverage.sum(-1), torch.full((4,), 3.0, dtype=torch.float64))
    assert not state.coverage[2:, 3:].any()  # the second sentence has three words
