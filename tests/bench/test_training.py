"""The training benchmark: what is compared is the same, is learnt, and is named where it is missing."""

import importlib.util

import numpy as np
import pytest
import torch

from regard.bench import training, training_cuda
from regard.bench.pairs import join_at_random, make_buckets, make_pairs
from regard.bench.training_peers import Sizes, TorchTransformer
from regard.data.batching import collate
from regard.data.tokenizer import PAD, UNKNOWN
from regard.errors import RegardError
from regard.training.task import Position

TINY = Sizes(vocabulary=50, size=16, heads=2, layers=1, hidden=32)


def test_lengths_are_those_of_multi30k():
    pairs = make_pairs(4000, 8000)
    lengths = np.array([[len(source), len(target)] for source, target in pairs])
    assert 14 < lengths[:, 0].mean() < 15.2
    assert 14.8 < lengths[:, 1].mean() < 16
    assert 0.7 < np.corrcoef(np.log(lengths.T))[0, 1] < 0.9
    assert min(source.min() for source, _ in pairs) > UNKNOWN


def test_batches_hold_the_same_pairs_by_the_same_budget():
    pairs = make_pairs(2000, 8000)
    sorted_ones, random_ones = make_buckets(pairs, 1024), join_at_random(pairs, 1024)
    for batch in [*sorted_ones, *random_ones]:
        assert batch.tokens == int((batch.target[:, 1:] != PAD).sum())
    for batch in sorted_ones:
        assert max(batch.target.shape[1] - 1, batch.source.shape[1]) * len(batch) <= 1024
    for batch in random_ones:  # JoeyNMT stops as soon as the budget is reached, and not before
        assert max(batch.target.shape[1] - 1, batch.source.shape[1] + 1) * len(batch) >= 1024
        rest = max(batch.target_lengths[:-1].max(), batch.source_lengths[:-1].max() + 1)
        assert rest * (len(batch) - 1) < 1024
    tokens = [sum(batch.tokens for batch in batches) / len(batches) for batches in (sorted_ones, random_ones)]
    assert tokens[0] > 1.5 * tokens[1]  # what bucketing is for


def test_nn_transformer_with_our_weights_has_our_loss():
    batch = make_buckets(make_pairs(50, TINY.vocabulary), 256)[0]
    training.same_loss(batch, TINY)


def test_another_loss_is_refused(monkeypatch):
    copy = TorchTransformer.copy

    def spoil(self, model):
        copy(self, model)
        with torch.no_grad():
            self.source.weight.mul_(1.5)

    monkeypatch.setattr(TorchTransformer, "copy", spoil)
    with pytest.raises(RegardError, match="the loss of nn.Transformer: results differ"):
        training.same_loss(make_buckets(make_pairs(50, TINY.vocabulary), 256)[0], TINY)


def test_it_runs_and_names_who_is_not_there(monkeypatch):
    monkeypatch.setattr(training, "PAIRS", 300)
    monkeypatch.setattr(training, "RATE", 1e-2)
    monkeypatch.setattr(training, "memory", lambda *given: iter(()))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    torch_result, marian, joey, gru = training.run(rounds=4, sizes=TINY, budget=256)
    assert torch_result.ratio > 0
    assert torch_result.details["ours_parameters"] == torch_result.details["peer_parameters"]
    assert torch_result.details["ours_first_loss"] == pytest.approx(torch_result.details["peer_first_loss"], rel=0.1)
    for result, name in ((marian, "Marian"), (joey, "JoeyNMT"), (gru, "JoeyNMT GRU")):
        assert result.peer == f"{name} is not installed"
        assert result.ratio is None
        assert not result.reached


def test_what_does_not_learn_is_refused(monkeypatch):
    monkeypatch.setattr(training, "RATE", 0.0)
    batches = make_buckets(make_pairs(100, TINY.vocabulary), 256)
    still = {"Regard": training.transformer}
    monkeypatch.setattr(
        training.Rate, "losses", property(lambda self: [1.0, 1.0], lambda self, value: None), raising=False
    )
    with pytest.raises(RegardError, match="Regard does not learn"):
        training.measure(still, TINY, batches, batches, rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*training.TRANSFORMERS, *training.RNNS])
def test_every_peer_that_is_installed_learns(name):
    if name in training.PACKAGES:
        pytest.importorskip(training.PACKAGES[name])
    torch.manual_seed(0)
    batches = make_buckets(make_pairs(300, TINY.vocabulary), 256)
    rate = training.Rate((training.TRANSFORMERS | training.RNNS)[name](TINY), batches[:1])
    rate.optimiser.param_groups[0]["lr"] = 1e-2
    for _ in range(30):
        rate.step()
    assert rate.losses[-1] < 0.8 * rate.losses[0]


@pytest.mark.slow
def test_memory_is_measured_without_imports():
    peak = training.peak_memory(
        training.partial(training.train_once, "Regard", TINY, 256, 0), training.partial(training.load, "Regard")
    )
    assert 0 <= peak < 32 * training.MIB


def test_a_gpu_is_asked_for_where_there_is_none():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(RegardError, match="no CUDA device"):
        next(training.run(device="cuda"))


@pytest.mark.parametrize("half", [True, False])
def test_the_batches_of_a_gpu_are_those_of_its_peers(half):
    sizes = Sizes(vocabulary=30, size=8, heads=2, layers=1, hidden=8, dropout=0.0)
    pairs = make_pairs(60, sizes.vocabulary, 0, training_cuda.MEANS, training_cuda.LONGEST)
    task = training_cuda.PairTask(training_cuda.transformer(sizes), pairs, sizes.smoothing, budget=512)
    task.few_shapes(half)
    stream = task.stream(Position())
    for plan in task.plans:
        _, number = next(stream)
        rows = collate([pairs[i] for i in plan])
        expected = task.objective(rows)
        found = task.objective(task.form_of(number))
        assert task.count(number) == rows.tokens
        torch.testing.assert_close(found.total, expected.total, rtol=1e-4, atol=1e-4)
