"""Peers of the training benchmark: equal weights give equal losses, and every peer learns."""

import numpy as np
import pytest
import torch
from bench.cases import SMALL

from regard.data import PAD, UNKNOWN
from regard.errors import RegardError
from regard_bench import training
from regard_bench.training_peers import TorchTransformer, join_at_random, make_buckets, make_pairs


def test_nn_transformer_with_our_weights_has_our_loss():
    batch = make_buckets(make_pairs(50, SMALL.vocabulary), 256)[0]
    training.same_loss(batch, SMALL)


def test_another_loss_is_refused(monkeypatch):
    copy = TorchTransformer.copy

    def spoil(self, model):
        copy(self, model)
        with torch.no_grad():
            self.source.weight.mul_(1.5)

    monkeypatch.setattr(TorchTransformer, "copy", spoil)
    with pytest.raises(RegardError, match="the loss of nn.Transformer: results differ"):
        training.same_loss(make_buckets(make_pairs(50, SMALL.vocabulary), 256)[0], SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*training.TRANSFORMERS, *training.RNNS])
def test_every_peer_that_is_installed_learns(name):
    if name in training.PACKAGES:
        pytest.importorskip(training.PACKAGES[name])
    torch.manual_seed(0)
    batches = make_buckets(make_pairs(300, SMALL.vocabulary), 256)
    rate = training.Rate((training.TRANSFORMERS | training.RNNS)[name](SMALL), batches[:1])
    rate.optimiser.param_groups[0]["lr"] = 1e-2
    for _ in range(30):
        rate.step()
    assert rate.losses[-1] < 0.8 * rate.losses[0]


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
    for batch in random_ones:  # JoeyNMT stops exactly when the budget is reached
        assert max(batch.target.shape[1] - 1, batch.source.shape[1] + 1) * len(batch) >= 1024
        rest = max(batch.target_lengths[:-1].max(), batch.source_lengths[:-1].max() + 1)
        assert rest * (len(batch) - 1) < 1024
    tokens = [sum(batch.tokens for batch in batches) / len(batches) for batches in (sorted_ones, random_ones)]
    assert tokens[0] > 1.5 * tokens[1]  # the purpose of bucketing
