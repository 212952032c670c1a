"""Embeddings with positions; encoders of every kind: which one is built, which are refused, and that each aligns.

The tests of the models compare each with its formulas, and `test_contract` tests padding.
"""

import json
import math

import oracles
import pytest
import tiny
import torch
import torch.nn.functional as F
from models.cases import SOURCES, TARGETS, fit, luong, rnnsearch, sentences, transformer
from models.formulas import SINES
from oracles import agree
from rounding import DRAWS, check_as_exact
from torch import nn

from regard import load
from regard.attention import Block, Encoder, Lengths, Packed, fused_stack, join, watch
from regard.errors import RegardError
from regard.models.config import TransformerConfig
from regard.models.encoders import (
    BlockEncoder,
    Convolution,
    Embedding,
    Recurrence,
    initialise,
    make_encoder,
    pool_mean,
)
from regard.models.kinds import build, complete_table
from regard.models.recurrent import Bidirectional, Stack
from regard.tasks import start
from regard.training import Checkpoints, read_manifest
from regard.training.checkpoint import canonical


@pytest.mark.parametrize(
    ("positions", "join"),
    [
        ("sinusoidal", "add"),
        ("sinusoidal", "concatenate"),
        ("learned", "add"),
        ("learned", "concatenate"),
        ("rotary", "add"),
        ("none", "add"),
    ],
)
def test_tokens_are_scaled_and_positions_join_them(positions, join):
    embedding = Embedding(11, 6, positions, join, 9, 0.5).double().eval()
    ids = torch.randint(11, (2, 5))
    x = embedding.tokens.weight[ids] * math.sqrt(6)
    if positions == "learned":
        place = embedding.positions.vectors[:5].expand(2, -1, -1)
    else:
        place = torch.stack([oracles.sinusoid(t, 6) for t in range(5)]).expand(2, -1, -1)
    if positions in ("sinusoidal", "learned"):
        x = embedding.mix(torch.cat([x, place], -1)) if join == "concatenate" else x + place
    agree(embedding(ids), x)


@pytest.mark.parametrize("sines", ["interleaved", "halves", "fairseq"])
def test_tokens_may_stay_as_they_are_and_sines_lie_otherwise(sines):
    place = torch.stack([SINES[sines](t, 6) for t in range(5)])
    ids = torch.randint(11, (2, 5))
    for scaled in (True, False):
        embedding = Embedding(11, 6, "sinusoidal", "add", 9, 0.0, sines=sines, scaled=scaled).double().eval()
        words = embedding.tokens.weight[ids]
        agree(embedding(ids), (words * math.sqrt(6) if scaled else words) + place, embedding.parameters())
        agree(embedding(ids)[:, 3:4], embedding(ids[:, 3:4], None, torch.tensor([3, 3])))


@pytest.mark.gpu
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("sines", ["interleaved", "halves", "fairseq"])
def test_one_kernel_embeds_packed_sentences(sines, scaled):
    """Under autocast, the kernel equals the plain operations up to the sum's rounding."""
    embedding = Embedding(11, 48, "sinusoidal", "add", 9, 0.0, sines=sines, scaled=scaled).cuda()
    ids, span = torch.randint(11, (12,), device="cuda"), Packed(torch.tensor([0, 7, 8, 12]).cuda(), sizes=(12, 9))
    exact = embedding(ids, span)
    with torch.autocast("cuda", torch.bfloat16):
        assert embedding.embed_fused(ids, span, 0) is not None
        found = embedding(ids, span)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, rtol=0.01, atol=0.01)


def test_dropout_falls_in_training_alone():
    embedding = Embedding(11, 6, "sinusoidal", "add", 9, 0.5)
    ids = torch.randint(11, (4, 5))
    assert (embedding(ids) == 0).any()
    assert not (embedding.eval()(ids) == 0).any()


def test_linear_layers_start_after_glorot_and_embeddings_as_they_are():
    model = torch.nn.ModuleDict({"stack": Encoder(32, 4, 1, 48), "words": Embedding(50, 32, "learned", "add", 9, 0.0)})
    tokens, vectors = model["words"].tokens.weight.clone(), model["words"].positions.vectors.clone()
    initialise(model)
    assert torch.equal(model["words"].tokens.weight, tokens)
    assert torch.equal(model["words"].positions.vectors, vectors)
    for name, parameter in model["stack"].named_parameters():
        if parameter.ndim == 2:
            bound = (6 / sum(parameter.shape)) ** 0.5
            assert 0.9 * bound < parameter.abs().max() <= bound, name
        elif name.endswith("bias"):
            assert not parameter.any(), name


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


def test_the_mean_leaves_padding_out():
    states = torch.randn(3, 4, 2, dtype=torch.float64)
    states[1, 2:] = torch.nan
    mean = pool_mean(states, torch.tensor([4, 2, 0]))
    agree(mean, torch.stack([states[0].mean(0), states[1, :2].mean(0), torch.zeros(2, dtype=torch.float64)]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rnnsearch", "luong"])
@pytest.mark.parametrize("encoder", ["rnn", "convolution", "self-attention"])
def test_every_encoder_learns_and_its_attention_aligns(kind, encoder):
    """Copying symbols: after some updates the attention looks at the symbol to write next."""
    torch.manual_seed(1)
    options = {"encoder": encoder, "size": 32, "embedding": 32, "heads": 4, "layers": 1}
    config = (rnnsearch if kind == "rnnsearch" else luong)(
        **options, **({"hidden": 32, "maxout": 32} if kind == "rnnsearch" else {})
    )
    model = build(kind, config, SOURCES, TARGETS)

    def draw():
        source = sentences(SOURCES - 1, [6] * 32)
        shifted = sentences(SOURCES, [6] * 32)
        shifted.ids[:, 0], shifted.ids[:, 1:] = TARGETS - 1, source.ids[:, :-1]
        return source, shifted

    def loss():
        source, shifted = draw()
        return F.cross_entropy(model(source, shifted).flatten(0, 1), source.ids.flatten())

    fit(model, loss, 400, 5e-3, clip=1.0)
    assert loss() < 0.1
    source, shifted = draw()
    with torch.no_grad(), watch(model) as looks:
        model(source, shifted)
    weights = looks["attention"].weights
    assert (weights.argmax(-1) == torch.arange(6)).float().mean() > 0.8


# ---- replacements of self-attention: each equals its formula with as many parameters, and older runs do not name them


@pytest.mark.parametrize("reach", [1, 3])
def test_a_convolution_is_torchs(reach):
    made, x = Convolution(10, reach).double(), torch.randn(2, 7, 10, dtype=torch.float64)
    kernel = 2 * reach + 1
    net = nn.Conv1d(10, 2 * made.width, kernel, padding=reach).double()
    with torch.no_grad():
        net.weight.copy_(made.gated.weight.unflatten(1, (kernel, 10)).transpose(1, 2))
        net.bias.copy_(made.gated.bias)
    agree(made(x), made.output(F.glu(net(x.mT).mT, -1)))


def test_a_recurrence_is_torchs_from_both_ends():
    made, x = Recurrence(6).double(), torch.randn(2, 5, 6, dtype=torch.float64)
    net = nn.GRU(6, 3, batch_first=True, bidirectional=True).double()
    with torch.no_grad():
        for layer, ending in ((made.both.forwards[0], ""), (made.both.backwards[0], "_reverse")):
            for name, parameter in layer.net.named_parameters():
                getattr(net, name + ending).copy_(parameter)
    agree(made(x), net(x)[0])
    agree(made(x, Lengths([5, 3]))[1, :3], net(x[1:, :3])[0][0])


@pytest.mark.parametrize("size", [64, 256, 512])
def test_parameters_are_about_as_many_as_those_of_attention(size):
    wanted = 4 * size**2
    for reach in (1, 2, 8):
        assert sum(each.numel() for each in Convolution(size, reach).parameters()) == pytest.approx(wanted, rel=0.15)
    assert sum(each.numel() for each in Recurrence(size).parameters()) == pytest.approx(4.5 * size**2, rel=0.06)


@pytest.mark.parametrize(("mixing", "reach"), [("window", 1), ("window", 2), ("convolution", 1), ("convolution", 3)])
def test_a_word_meets_those_near_it_alone(mixing, reach):
    model = build("transformer", transformer(layers=1, mixing=mixing, reach=reach), SOURCES, TARGETS).double().eval()
    x = torch.randn(1, 9, 8, dtype=torch.float64, requires_grad=True)
    source = sentences(SOURCES, [9])
    states = model.encoder(x, join(source.span, model.window(source)))
    (grad,) = torch.autograd.grad(states[0, 4].sum() + states[0, 4].square().sum(), x)
    assert grad[0].abs().sum(-1).gt(1e-12).nonzero().flatten().tolist() == list(range(4 - reach, 5 + reach))


def test_recurrent_cells_keep_their_start():
    model = build("transformer", TransformerConfig(mixing="recurrence", size=32, layers=1), 20, 20)
    for gate in model.encoder.blocks[0].mixing.both.forwards[0].net.weight_hh_l0.chunk(3):
        agree(gate @ gate.mT, torch.eye(16), rtol=1e-4, atol=1e-5)


def test_an_older_run_has_the_defaults_of_what_came_later(tmp_path):
    run, table = tmp_path / "run", tiny.table(tmp_path)
    start(table, run)
    before = load(run).translate(["1 2 3"])
    newer = ("mixing", "score", "scaled", "split")
    for folder in Checkpoints(run).steps():
        manifest = {key: value for key, value in read_manifest(folder).items() if key != "sha256"}
        model = manifest["task"]["model"]
        assert model["mixing"] == "attention"
        manifest["task"]["model"] = {key: value for key, value in model.items() if key not in newer}
        (folder / "manifest.json").write_bytes(canonical(manifest))
        (run / "checkpoints" / "best.json").unlink(missing_ok=True)  # nor did they have this file
        assert complete_table(json.loads((folder / "manifest.json").read_text())["task"]["model"]) == model
    assert load(run).translate(["1 2 3"]) == before
    table["training"]["steps"] = 10
    assert start(table, run, resume=True).result.step == 10
    table["model"]["mixing"] = "window"
    with pytest.raises(RegardError, match="mixing"):
        start(table, run, resume=True)


@pytest.mark.gpu
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("mixing", ["window", "convolution", "recurrence"])
def test_on_a_gpu_it_is_as_exact_as_torchs_operations(mixing, norm, monkeypatch):
    ran, draws = [], []
    monkeypatch.setattr(fused_stack, "run", lambda *given, run=fused_stack.run: ran.append(1) or run(*given))
    reach = {} if mixing == "recurrence" else {"reach": 3}
    config = TransformerConfig(size=64, heads=2, layers=2, hidden=96, dropout=0.0, norm=norm, mixing=mixing, **reach)
    for number in range(DRAWS):
        model = build("transformer", config, SOURCES, TARGETS).cuda()
        source = sentences(SOURCES, [5, 40, 1, 17, 33])
        exact = model.encode(source.to("cuda")).states[source.real.cuda()]
        along, parameters = torch.randn_like(exact), list(model.encoder.parameters())

        def with_gradients(states, along=along, parameters=parameters):
            return [states, *torch.autograd.grad(states, parameters, along.to(states.dtype))]

        with torch.autocast("cuda", torch.bfloat16):
            found = model.encode(source.pack().to("cuda")).states
        assert len(ran) == number + 1
        with torch.autocast("cuda", torch.bfloat16), monkeypatch.context() as plainly:
            plainly.setattr(fused_stack, "serves", lambda *given: False)
            plain = model.encode(source.pack().to("cuda")).states
        assert len(ran) == number + 1
        draws.append(tuple(map(with_gradients, (found, plain, exact))))
    check_as_exact(draws)
