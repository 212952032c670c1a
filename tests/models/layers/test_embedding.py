"""Embeddings with positions, and the first parameters of a stack of blocks."""

import math

import oracles
import pytest
import torch
from oracles import agree

from regard.attention import Encoder, Packed
from regard.models.layers.embedding import Embedding, initialise


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
        angles = [[t / 10000 ** (2 * (i // 2) / 6) for i in range(6)] for t in range(5)]
        waves = [[math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(row)] for row in angles]
        place = torch.tensor(waves, dtype=torch.float64).expand(2, -1, -1)
    if positions in ("sinusoidal", "learned"):
        x = embedding.mix(torch.cat([x, place], -1)) if join == "concatenate" else x + place
    agree(embedding(ids), x)


@pytest.mark.parametrize("sines", ["halves", "fairseq"])
def test_tokens_may_stay_as_they_are_and_sines_lie_otherwise(sines):
    formula = {"halves": oracles.sinusoid_halves, "fairseq": oracles.sinusoid_fairseq}[sines]
    place = torch.stack([formula(t, 6) for t in range(5)])
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
    """Under autocast: as without it, but for the rounding of the sum."""
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


def test_a_step_knows_where_it_stands():
    embedding, ids = Embedding(11, 6, "sinusoidal", "add", 9, 0.0).double(), torch.randint(11, (2, 5))
    agree(embedding(ids)[:, 3:4], embedding(ids[:, 3:4], None, torch.tensor([3, 3])))


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
