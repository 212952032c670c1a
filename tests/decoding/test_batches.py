"""Many documents at once: in the order given, each as if it were alone."""

import pytest
import torch

from regard.data.tokenizer import END, PAD
from regard.decoding.batches import label_in_batches, label_pictures
from regard.decoding.sources import documents_of, flat_of
from regard.models.contract import Pictures
from regard.models.kinds import build, read_model_config

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
        source = documents_of([row]) if kind == "han" else flat_of([row])
        torch.testing.assert_close(model.classify(model.encode(source)).log_softmax(-1)[0], each)
    assert label_in_batches(model, [], reads).shape == (0, 3)


def test_rows_become_sentences():
    rows = [[5, 6, END, 7, END], [], [8, END], [9, 9, 9, END, 4, END, 4, 5, END]]
    found = documents_of(rows)
    assert found.sentences.tolist() == [2, 0, 1, 3]
    assert found.words.lengths.tolist() == [2, 1, 1, 3, 1, 2]
    assert found.words.ids.tolist() == [
        [5, 6, PAD],
        [7, PAD, PAD],
        [8, PAD, PAD],
        [9, 9, 9],
        [4, PAD, PAD],
        [4, 5, PAD],
    ]
    flat = flat_of(rows)
    assert flat.lengths.tolist() == [5, 0, 2, 9]
    assert flat.ids[0].tolist() == [5, 6, END, 7, END, PAD, PAD, PAD, PAD]
    nothing = documents_of([])
    assert (nothing.words.ids.shape, nothing.sentences.shape) == ((0, 1), (0,))


def test_pictures():
    table = {"kind": "convnet", "channels": 4, "stages": 2, "blocks": 1, "after": 1, "reduction": 2}
    model = build("convnet", read_model_config(table), 0, 3).eval()
    pixels = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8)
    found = label_pictures(model, iter(pixels), rows=2)
    expected = model.classify(model.encode(Pictures(pixels))).log_softmax(-1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert label_pictures(model, []).shape == (0, 3)
