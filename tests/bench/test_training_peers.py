"""Peers of the training benchmark: the same weights have the same loss, and every peer learns."""

import pytest
import torch
from bench.cases import SMALL

from regard.errors import RegardError
from regard_bench import training
from regard_bench.pairs import make_buckets, make_pairs
from regard_bench.training_peers import TorchTransformer


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
