"""The Transformer against the paper's formulas, written out; what it shares with other kinds is in test_contract.py."""

import math

import pytest
import torch

from regard.errors import ArgumentError
from regard.models.contract import Tokens
from regard.models.kinds import build, model_config


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
    model = build("transformer", model_config({**table, **options}), 9, 9).double()
    with torch.no_grad():  # norms and biases that are not one and zero
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def attend(heads, x, memory, causal=False):
    """MultiHead(Q, K, V) of section 3.2.2, one head and one query at a time."""
    size, width = x.shape[-1], x.shape[-1] // heads.heads
    weight, bias = heads.projection.weight, heads.projection.bias
    q, k, v = (
        y @ weight[i * size : (i + 1) * size].T + bias[i * size : (i + 1) * size]
        for i, y in enumerate((x, memory, memory))
    )
    rows = []
    for i in range(len(x)):
        parts = []
        for h in range(heads.heads):
            cut = slice(h * width, (h + 1) * width)
            seen = i + 1 if causal else len(memory)
            weights = torch.softmax(torch.stack([q[i, cut] @ k[j, cut] for j in range(seen)]) / math.sqrt(width), 0)
            parts.append(sum(weights[j] * v[j, cut] for j in range(seen)))
        rows.append(torch.cat(parts))
    return torch.stack(rows) @ heads.output.weight.T + heads.output.bias


def normed(norm, x):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias


def block(block, x, memory=None, *, causal):
    parts = [(lambda y: attend(block.attention, y, y, causal), block.attention_norm)]
    if memory is not None:
        parts.append((lambda y: attend(block.cross, y, memory), block.cross_norm))
    first, _, second = block.feed
    parts.append(
        (lambda y: (y @ first.weight.T + first.bias).clamp(min=0) @ second.weight.T + second.bias, block.feed_norm)
    )
    for part, norm in parts:
        x = x + part(normed(norm, x)) if block.norm == "pre" else normed(norm, x + part(x))
    return x


def stack(stack, x, memory=None, *, causal):
    for each in stack.blocks:
        x = block(each, x, memory, causal=causal)
    return x if isinstance(stack.final_norm, torch.nn.Identity) else normed(stack.final_norm, x)


def embed(embedding, ids, join):
    size = embedding.tokens.weight.shape[1]
    position = torch.zeros(len(ids), size, dtype=torch.float64)
    for t in range(len(ids)):
        for i in range(size):
            angle = t / 10000 ** (2 * (i // 2) / size)
            position[t, i] = math.sin(angle) if i % 2 == 0 else math.cos(angle)
    x = embedding.tokens.weight[ids] * math.sqrt(size)
    if join == "add":
        return x + position
    return torch.cat([x, position], -1) @ embedding.mix.weight.T + embedding.mix.bias


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("join", "tied"), [("add", "all"), ("concatenate", "none"), ("add", "output")])
def test_it_is_the_papers_formula(norm, join, tied):
    """Forward and every gradient."""
    model = small(norm=norm, join=join, tied=tied)
    source, target = torch.randint(4, 9, (5,)), torch.randint(4, 9, (4,))
    memory = stack(model.encoder, embed(model.source, source, join), causal=False)
    hidden = stack(model.decoder, embed(model.target, target, join), memory, causal=True)
    expected = hidden @ model.readout.weight.T + model.readout.bias
    found = model(Tokens.of(source[None], torch.tensor([5])), Tokens.of(target[None], torch.tensor([4])))[0]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    weight, parameters = torch.randn_like(expected), list(model.parameters())
    ours = torch.autograd.grad((found * weight).sum(), parameters)
    theirs = torch.autograd.grad((expected * weight).sum(), parameters)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_base_has_as_many_parameters_as_the_paper_says():
    """Table 3: 65 million with a joint vocabulary of 37,000 pieces."""
    with torch.device("meta"):
        model = build(
            "transformer", model_config({"kind": "transformer", "preset": "base", "tied": "all"}), 37_000, 37_000
        )
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(65, rel=0.03)


def test_what_is_tied_is_one_tensor():
    model = small(tied="all")
    assert model.readout.weight is model.source.tokens.weight is model.target.tokens.weight
    assert small(tied="output").source.tokens.weight is not small(tied="output").target.tokens.weight
    with pytest.raises(ArgumentError, match="one vocabulary, not 9 and 8"):
        build("transformer", model_config({"kind": "transformer", "preset": "tiny", "tied": "all"}), 9, 8)


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
