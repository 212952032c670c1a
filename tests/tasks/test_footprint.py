"""What a run takes of memory at least, and where that is too much."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard.errors import ConfigError
from regard.tasks import footprint
from regard.tasks.footprint import TRAINED, check_batches, check_weights, count_weights
from regard.tasks.settings import read_settings

CPU = torch.device("cpu")
MODEL = {"kind": "transformer", "size": 16, "heads": 2, "layers": 2, "hidden": 16}


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
    monkeypatch.setattr(footprint, "memory", lambda: needed)
    assert check_weights(settings(), CPU, 50, 60) == needed
    monkeypatch.setattr(footprint, "memory", lambda: needed - 1)
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
    monkeypatch.setattr(footprint, "room_on", lambda device: room["bytes"])
    check_batches(given, torch.device(device), prepared, 100_000, 1000)
    room["bytes"] -= 1
    check_batches(given, torch.device(device), prepared, 499, 1000)
    with pytest.raises(ConfigError, match="training.batch_tokens: a batch of 500 tokens would take"):
        check_batches(given, torch.device(device), prepared, 100_000, 1000)


def test_weights_beside_which_adapters_learn_take_no_more_than_themselves():
    given = read_settings({"model": {**MODEL, "adapter": 4}, "training": {"ema": 0.9}})
    assert check_weights(given, CPU, 50, 60) == 4 * count_weights(given, 50, 60)
