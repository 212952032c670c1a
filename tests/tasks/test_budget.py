"""The token budget of a batch, and what a small corpus has to do with it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard.tasks.budget import CPU, DOCUMENTS, LEAST, MOST, PICTURES, most_of, token_budget, worst
from regard.tasks.settings import read_settings

CPU_ALONE = SimpleNamespace(device=torch.device("cpu"))


def prepared(source: int, target: int, rows: int) -> SimpleNamespace:
    """So many rows of so many tokens a side, without their ends."""
    lengths = np.broadcast_to(np.array([source, target], np.int32), (rows, 2))
    return SimpleNamespace(train=SimpleNamespace(lengths=lengths))


@pytest.mark.parametrize(
    ("tokens", "device", "budget"),
    [
        (200 * 4096, "cpu", 4096),
        (200 * 4096 - 16, "cpu", 2048),
        (50 * 4096, "cuda", 4096),
        (50 * 4096 - 16, "cuda", 2048),
        (200 * 8191, "cpu", 4096),
        (16, "cpu", LEAST),
        (50 * MOST, "cuda", MOST),
        (400 * MOST, "cuda", MOST),
    ],
)
def test_an_epoch_has_enough_batches(tokens, device, budget):
    """The largest power of two of which there are 50 on a GPU, 200 elsewhere; the end of each target counts."""
    assert most_of(prepared(3, 15, tokens // 16), "text", device) == budget


def test_documents_are_counted_by_themselves():
    of_text, of_documents = (most_of(prepared(4095, 1, 200), reads, "cpu") for reads in ("text", "documents"))
    assert (of_text, of_documents) == (LEAST, 4096)


@pytest.mark.parametrize(
    ("table", "budget"),
    [
        ({"data": {"source": "a", "target": "b"}}, CPU),
        ({"data": {"documents": "a.tsv"}}, DOCUMENTS),
        ({"data": {"images": "a", "captions": "b"}}, PICTURES),
        ({"data": {"source": "a", "target": "b"}, "training": {"batch_tokens": 77}}, 77),
    ],
)
def test_what_a_cpu_takes_of_a_large_corpus(table, budget):
    assert token_budget(read_settings(table), prepared(99, 99, 100_000), CPU_ALONE) == budget


def test_a_small_corpus_has_a_smaller_budget():
    settings = read_settings({"data": {"source": "a", "target": "b"}})
    assert token_budget(settings, prepared(7, 7, 51_200), CPU_ALONE) == 2048


@pytest.mark.parametrize(("budget", "longest", "rows"), [(1024, 100, 10), (100, 100, 1), (10, 100, 1)])
def test_the_worst_batch_is_full_of_the_longest(budget, longest, rows):
    batch = worst(budget, longest)
    assert batch.source.shape == (rows, longest)
    assert batch.target.shape == (rows, longest + 1)  # with START and END
    assert set(batch.source_lengths.tolist()) == {longest}
