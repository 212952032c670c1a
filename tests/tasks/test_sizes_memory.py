"""What a run takes of memory at least, where that is too much, and the token budget of a batch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard.errors import ConfigError
from regard.tasks import sizes
from regard.tasks.settings import read_settings
from regard.tasks.sizes import (
    CPU_TOKENS,
    DOCUMENT_TOKENS,
    LEAST,
    MOST,
    PICTURE_TOKENS,
    TRAINED,
    check_batches,
    check_weights,
    count_weights,
    most_of,
    token_budget,
    worst,
)

CPU = torch.device("cpu")
MODEL = {"kind": "transformer", "size": 16, "heads": 2, "layers": 2, "hidden": 16}
ALONE = SimpleNamespace(device=torch.device("cpu"))


def settings(**training):
    return read_settings({"model": MODEL, "training": training})


@pytest.mark.parametrize(
    ("training", "processes", "bytes_a_weight"),
    [
        ({}, 1, TRAINED),
        ({}, 4, TRAINED),  # each process has them all
        ({"shard": True}, 4, TRAINED / 4),
        ({"ema": 0.9}, 1, TRAINED + 4),
        ({"ema": 0.9, "shard": True}, 2, (TRAINED + 4) / 2),
    ],
)
def test_what_weights_take_in_training(training, processes, bytes_a_weight):
    given = settings(**training)
    count = count_weights(given, 50, 60)
    assert count > 60 * 16
    assert check_weights(given, CPU, 50, 60, processes) == int(count * bytes_a_weight)


def test_weights_are_refused_where_there_is_no_room_for_one_more(monkeypatch):
    needed = check_weights(settings(), CPU, 50, 60)
    monkeypatch.setattr(sizes, "memory", lambda: needed)
    assert check_weights(settings(), CPU, 50, 60) == needed
    monkeypatch.setattr(sizes, "memory", lambda: needed - 1)
    with pytest.raises(ConfigError, match="weights would take .* in training, but this machine has"):
        check_weights(settings(), CPU, 50, 60)


@pytest.mark.parametrize(
    ("device", "precision", "size"), [("cpu", "auto", 4), ("cuda", "auto", 2), ("cuda", "fp32", 4)]
)
def test_batches_are_refused_beside_the_model(monkeypatch, device, precision, size):
    """Four vectors of sixteen numbers in each of two layers for a token, and no more tokens than there are."""
    prepared = SimpleNamespace(pictures=None, train=SimpleNamespace(lengths=np.full((100, 2), 5, np.int32)))
    given, tokens = settings(precision=precision), 500
    needed = 1000 + 4 * 16 * 2 * size * tokens
    room = {"bytes": needed}
    monkeypatch.setattr(sizes, "room_on", lambda device: room["bytes"])
    check_batches(given, torch.device(device), prepared, 100_000, 1000)
    room["bytes"] -= 1
    check_batches(given, torch.device(device), prepared, 499, 1000)
    with pytest.raises(ConfigError, match="training.batch_tokens: a batch of 500 tokens would take"):
        check_batches(given, torch.device(device), prepared, 100_000, 1000)


def test_weights_beside_which_adapters_learn_take_no_more_than_themselves():
    given = read_settings({"model": {**MODEL, "adapter": 4}, "training": {"ema": 0.9}})
    assert check_weights(given, CPU, 50, 60) == 4 * count_weights(given, 50, 60)


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
        ({"data": {"source": "a", "target": "b"}}, CPU_TOKENS),
        ({"data": {"documents": "a.tsv"}}, DOCUMENT_TOKENS),
        ({"data": {"images": "a", "captions": "b"}}, PICTURE_TOKENS),
        ({"data": {"source": "a", "target": "b"}, "training": {"batch_tokens": 77}}, 77),
    ],
)
def test_what_a_cpu_takes_of_a_large_corpus(table, budget):
    assert token_budget(read_settings(table), prepared(99, 99, 100_000), ALONE) == budget


def test_a_small_corpus_has_a_smaller_budget():
    settings = read_settings({"data": {"source": "a", "target": "b"}})
    assert token_budget(settings, prepared(7, 7, 51_200), ALONE) == 2048


@pytest.mark.parametrize(("budget", "longest", "rows"), [(1024, 100, 10), (100, 100, 1), (10, 100, 1)])
def test_the_worst_batch_is_full_of_the_longest(budget, longest, rows):
    batch = worst(budget, longest)
    assert batch.source.shape == (rows, longest)
    assert batch.target.shape == (rows, longest + 1)  # with START and END
    assert set(batch.source_lengths.tolist()) == {longest}
