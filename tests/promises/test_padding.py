"""Padding never changes a result: logits, losses, gradients and translations, for every kind of model, in float64."""

import random
from typing import Any

import pytest
import torch
from decoding.cases import greedy

from regard.data import PAD, Batch, collate
from regard.decoding import GREEDY, batches, tokens_of
from regard.models import Model, Tokens, build, read_model_config
from regard.training import Prediction, inputs

VOCABULARY = 13
SMALL: dict[str, dict[str, Any]] = {
    "rnn": {"size": 6, "embedding": 5},
    "rnnsearch": {"size": 6, "embedding": 5, "hidden": 4, "maxout": 3},
    "luong": {"size": 6, "embedding": 5, "layers": 2},
    "transformer": {"size": 8, "heads": 2, "layers": 2, "hidden": 12},
    "encoder": {"size": 8, "heads": 2, "layers": 2, "hidden": 12, "job": "language-model"},
    "lstmn": {"size": 6, "embedding": 5, "hidden": 4},
}
CASES = [
    *((kind, {}) for kind in SMALL),
    ("rnn", {"cell": "lstm", "layers": 2, "reverse": True, "context": "start", "start": "copy"}),
    ("rnn", {"cell": "rnn", "nonlinearity": "relu"}),
    ("rnnsearch", {"cell": "lstm", "layers": 2, "output": "previous"}),
    ("luong", {"span": "local-p", "radius": 2, "score": "general"}),
    ("luong", {"span": "local-m", "radius": 2, "score": "concat"}),
    ("luong", {"score": "location", "length": 40, "input_feeding": False, "reverse": True}),
    ("transformer", {"norm": "post", "positions": "rotary", "tied": "all"}),
    ("transformer", {"positions": "alibi", "decoder_layers": 1}),
    ("transformer", {"positions": "learned", "join": "concatenate", "length": 60}),
    ("transformer", {"positions": "none", "tied": "none"}),
    ("transformer", {"activation": "silu", "sines": "fairseq", "scale_embeddings": False, "output_bias": False}),
    ("encoder", {"positions": "alibi"}),
    ("lstmn", {"fusion": "deep", "layers": 2}),
]


def small(kind: str, options: dict[str, Any]) -> Model:
    table = {"kind": kind, **SMALL[kind], **options, "dropout": 0.0}
    return build(kind, read_model_config(table), VOCABULARY, VOCABULARY).double()


def sentence(longest: int = 7) -> list[int]:
    return [random.randrange(4, VOCABULARY) for _ in range(random.randint(1, longest))]


def wider(batch: Batch, source: int, target: int) -> Batch:
    """Add padding, whose embeddings would change the result if a model read them."""

    def grown(ids, by):
        return torch.cat([ids, torch.full((len(ids), by), PAD)], 1)

    return Batch(
        grown(batch.source, source),
        batch.source_lengths,
        grown(batch.target, target),
        batch.target_lengths,
        batch.tokens,
    )


def measured(model: Model, batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor], dict[str, torch.Tensor]]:
    """Return the loss, the logits of each sentence, and the gradients."""
    objective = Prediction(model, smoothing=0.1).train()
    model.zero_grad()
    loss = objective(batch).total
    loss.backward()
    gradients = {
        name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    with torch.no_grad():
        logits = model(*inputs(batch))
    rows = [row[:length] for row, length in zip(logits, batch.target_lengths.tolist(), strict=True)]
    return loss.detach(), rows, gradients


@pytest.mark.parametrize(
    ("kind", "options"), CASES, ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value))
)
def test_more_padding_changes_nothing(kind, options):
    model = small(kind, options)
    pairs = [(sentence(), sentence()) for _ in range(4)]
    batch = collate(pairs)
    expected = measured(model, batch)
    for source, target in ((1, 0), (0, 1), (9, 9)):
        loss, rows, gradients = measured(model, wider(batch, source, target))
        torch.testing.assert_close(loss, expected[0], rtol=1e-10, atol=1e-10)
        for mine, its in zip(rows, expected[1], strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-10, atol=1e-10)
        assert gradients.keys() == expected[2].keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected[2][name], rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize(
    ("kind", "options"), CASES, ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value))
)
def test_a_batch_is_the_sum_of_its_sentences(kind, options):
    model = small(kind, options)
    pairs = [(sentence(), sentence()) for _ in range(4)]
    loss, rows, gradients = measured(model, collate(pairs))
    alone = [measured(model, collate([pair])) for pair in pairs]
    torch.testing.assert_close(loss, sum(each[0] for each in alone), rtol=1e-10, atol=1e-10)
    for mine, each in zip(rows, alone, strict=True):
        torch.testing.assert_close(mine, each[1][0], rtol=1e-10, atol=1e-10)
    for name, gradient in gradients.items():
        total = sum(each[2][name] for each in alone)
        torch.testing.assert_close(gradient, total, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize(
    ("kind", "options"),
    [case for case in CASES if case[0] != "encoder"],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value)),
)
def test_alone_is_in_any_batch(kind, options):
    model = small(kind, options).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # far from uniform, so that answers differ and some end early
            parameter.mul_(3)
    sources = [sentence(5) for _ in range(5)]
    alone = [greedy(model, tokens_of([source]), 6)[0] for source in sources]
    assert greedy(model, tokens_of(sources), 6) == alone
    wide = tokens_of(sources)
    order = torch.randperm(5)
    padded = Tokens.of(torch.cat([wide.ids, torch.full((5, 5), PAD)], 1)[order], wide.lengths[order])
    assert greedy(model, padded, 6) == [alone[i] for i in order]
    # In two or three batches, each filled up to its limit.
    found = batches.search_in_batches(model, sources[:3], GREEDY, budget=8)
    assert [answer.outputs[0].tokens[:6] for answer in found] == alone[:3]
