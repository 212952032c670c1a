"""Many inputs at once: results in the given order, each as if alone; an ensemble is the mean of its models."""

import random

import pytest
import torch
from decoding.cases import WORDS, found_of, sentences, small

from regard.data import END
from regard.decoding.batches import label_in_batches, label_pictures, search_in_batches
from regard.decoding.options import GREEDY, Options
from regard.decoding.scoring import documents_of, source_of, tokens_of
from regard.decoding.sentence_search import search
from regard.models import Pictures, build, read_model_config

KINDS = {
    "han": {"size": 3, "embedding": 4, "hidden": 5},
    "encoder": {"size": 8, "heads": 2, "layers": 1, "hidden": 8},
    "lstmn": {"job": "classify", "size": 4, "embedding": 4, "hidden": 4},
}


def model_of(kind):
    return build(kind, read_model_config({"kind": kind, **KINDS[kind]}), 12, 3).double().eval()


def rows_of(count):
    rows = []
    for _ in range(count):
        sizes = torch.randint(1, 9, (int(torch.randint(1, 5, ())),)).tolist()
        rows.append([i for size in sizes for i in [*torch.randint(4, 12, (size,)).tolist(), END]])
    return rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [1, 30, 10_000])
def test_each_as_if_alone(kind, budget):
    model, rows = model_of(kind), rows_of(9)
    reads = "documents" if kind == "han" else "text"
    found = label_in_batches(model, rows, reads, budget=budget)
    assert found.shape == (9, 3)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(9, dtype=torch.float64))
    for row, each in zip(rows, found, strict=True):
        source = documents_of([row]) if kind == "han" else source_of([row], "text")
        torch.testing.assert_close(model.classify(model.encode(source)).log_softmax(-1)[0], each)
    assert label_in_batches(model, [], reads).shape == (0, 3)


def test_pictures():
    table = {"kind": "convnet", "channels": 4, "stages": 2, "blocks": 1, "after": 1, "reduction": 2}
    model = build("convnet", read_model_config(table), 0, 3).eval()
    pixels = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8)
    found = label_pictures(model, iter(pixels), rows=2)
    expected = model.classify(model.encode(Pictures(pixels))).log_softmax(-1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert label_pictures(model, []).shape == (0, 3)


def test_an_empty_source_says_nothing_and_changes_nothing():
    model = small("transformer")

    def greedy(sources):
        return [each.outputs[0].tokens for each in search_in_batches(model, sources, GREEDY)]

    alone = greedy([[4, 5], [6]])
    assert greedy([[], [4, 5], [], [6], []]) == [[], alone[0], [], alone[1], []]
    assert greedy([[], []]) == [[], []]
    assert greedy([]) == []
    assert search(model, tokens_of([[4]]).__class__.of(torch.zeros(0, 1).long(), torch.zeros(0).long())) == []


@pytest.mark.parametrize("budget", [1, 30, 100_000])
def test_batches_change_nothing(budget):
    model, sources = small("rnnsearch"), sentences(9, longest=12)
    prefixes = [[random.randrange(3, WORDS)] for _ in sources]
    options = Options(beam=3, nbest=3, longest=7)
    wanted = [found_of(model, [source], options, prefixes=[p])[0] for source, p in zip(sources, prefixes, strict=True)]
    got = search_in_batches(model, sources, options, prefixes=prefixes, budget=budget)
    assert [[o.tokens for o in found.outputs] for found in got] == [
        [o.tokens for o in found.outputs] for found in wanted
    ]
