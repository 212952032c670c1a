"""The training benchmark: the compared models are equal and learn, and missing peers are named."""

import importlib.util

import pytest
from bench.cases import SMALL

from regard.errors import RegardError
from regard_bench import training
from regard_bench.training_peers import make_buckets, make_pairs


def test_it_runs_and_names_who_is_not_there(monkeypatch):
    monkeypatch.setattr(training, "PAIRS", 300)
    monkeypatch.setattr(training, "RATE", 1e-2)
    monkeypatch.setattr(training, "memory", lambda *given: iter(()))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    torch_result, marian, joey, gru = training.run(rounds=4, sizes=SMALL, budget=256)
    assert torch_result.ratio > 0
    assert torch_result.details["ours_parameters"] == torch_result.details["peer_parameters"]
    assert torch_result.details["ours_first_loss"] == pytest.approx(torch_result.details["peer_first_loss"], rel=0.1)
    for result, name in ((marian, "MarianMT"), (joey, "JoeyNMT"), (gru, "JoeyNMT GRU")):
        assert result.peer == f"{name} is not installed"
        assert result.ratio is None
        assert not result.reached


def test_what_does_not_learn_is_refused(monkeypatch):
    monkeypatch.setattr(training, "RATE", 0.0)
    batches = make_buckets(make_pairs(100, SMALL.vocabulary), 256)
    still = {"Regard": training.TRANSFORMERS["Regard"]}
    monkeypatch.setattr(
        training.Rate, "losses", property(lambda self: [1.0, 1.0], lambda self, value: None), raising=False
    )
    with pytest.raises(RegardError, match="Regard does not learn"):
        training.measure(still, SMALL, batches, batches, rounds=1)


@pytest.mark.slow
def test_memory_is_measured_without_imports():
    peak = training.peak_memory(
        training.partial(training.train_once, "Regard", SMALL, 256, 0), training.partial(training.load, "Regard")
    )
    assert 0 <= peak < 32 * training.MIB
