"""Objectives: a module around the model that turns a batch into a loss. Compiling and sharding wrap this.

The output projection and the loss are one operation, so that the scores of a whole batch never stand in memory.
"""

# b sentences · n target positions · t real tokens of the batch
from torch import nn

from regard.data.batching import Batch
from regard.kernels.projection_loss.chunked import projection_loss
from regard.models.contract import Model, Tokens
from regard.training.task import Loss

__all__ = ["Prediction", "inputs"]


class Prediction(nn.Module):
    """The next token: label-smoothed cross-entropy over every target token that is not padding.

    Szegedy et al. 2016 (arXiv:1512.00567), section 7: a share of the probability is spread evenly over all tokens.
    """

    def __init__(self, model: Model, smoothing: float = 0.0):
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: Batch) -> Loss:
        """The sum over the batch's target tokens; `nll` is the same without smoothing, `tokens` how many there are."""
        source, target = inputs(batch)
        hidden, _ = self.model.decode(self.model.encode(source), target)
        expected, real = batch.target[:, 1:], target.real
        readout = self.model.readout
        smoothing = self.smoothing if self.training else 0.0
        total, nll = projection_loss(hidden[real], readout.weight, readout.bias, expected[real], smoothing)
        return Loss(total, {"nll": nll, "tokens": real.sum().to(total.dtype)})


def inputs(batch: Batch) -> tuple[Tokens, Tokens]:
    """Source, and target as it is read: START first, without the END."""
    source = Tokens.of(batch.source, batch.source_lengths)
    return source, Tokens.of(batch.target[:, :-1], batch.target_lengths)
