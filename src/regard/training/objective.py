"""Objectives: a module around the model that turns a batch into a loss. Compiling and sharding wrap this.

The output projection and the loss are one operation, so that the scores of a whole batch never stand in memory.
"""

# b sentences · n target positions · t real tokens of the batch · d width
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Packed
from regard.data import Batch, PackedBatch
from regard.kernels import projection_loss
from regard.models import Model, Tokens
from regard.training.task import Loss


class Prediction(nn.Module):
    """Prediction of the next token: label-smoothed cross-entropy over every target token that is not padding.

    Szegedy et al. 2016 (arXiv:1512.00567), section 7: a share of the probability is spread evenly over all tokens.
    """

    replays = True  # an update may be a CUDA graph: nothing is read back from the device

    def __init__(self, model: Model, smoothing: float = 0.0):
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    @property
    def half_weights(self) -> bool:
        """Return whether products take copies of the weights in half precision: those of a model that reads packed
        batches.
        """
        return self.model.packs

    def forward(self, batch: Batch | PackedBatch) -> Loss:
        """Sum the loss over the batch's target tokens; `nll` is the same without smoothing, `tokens` their number."""
        source, target = inputs(batch)
        hidden, _ = self.model.decode(self.model.encode(source), target)
        return self.token_loss(hidden, batch, target)

    def token_loss(self, hidden: Float[Tensor, "*b n d"], batch: Batch | PackedBatch, target: Tokens) -> Loss:
        """Compute the loss from the decoder's output after each token of `target`."""
        smoothing = self.smoothing if self.training else 0.0
        if isinstance(batch, PackedBatch):
            expected = batch.expected.long()
            real = expected >= 0
        else:
            expected, real = batch.target[:, 1:], target.real
            if hidden.is_cuda and self.model.projects:  # how many are real is not waited for
                hidden, expected = hidden.flatten(0, 1), expected.masked_fill(~real, -1).flatten()
            else:
                hidden, expected = hidden[real], expected[real]
        total, nll = next_token(self.model, hidden, expected, smoothing)
        return Loss(total, {"nll": nll, "tokens": real.sum().to(total.dtype)})


def next_token(
    model: Model, hidden: Float[Tensor, "t d"], expected: Int[Tensor, " t"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Sum the smoothed cross-entropy, and the negative log-likelihood, which alone is reported.

    Where a negative number is expected nothing counts.
    """
    if model.projects:
        return projection_loss(hidden, model.readout.weight, model.readout.bias, expected, smoothing)
    # What such a model cannot say has no probability to be smoothed into.
    nll = F.cross_entropy(model.output(hidden).float(), expected, reduction="sum", ignore_index=-1)
    return nll, nll.detach()


def inputs(batch: Batch | PackedBatch) -> tuple[Tokens, Tokens]:
    """Return the source, and the target as it is read: START first, without the END."""
    if isinstance(batch, PackedBatch):
        ids, read, _, *offsets = batch.parts()
        spans = [Packed(each, sizes=(size, batch.longest)) for each, size in zip(offsets, batch.sizes, strict=True)]
        return Tokens(ids, spans[0]), Tokens(read, spans[1])
    source = Tokens.of(batch.source, batch.source_lengths)
    return source, Tokens.of(batch.target[:, :-1], batch.target_lengths)
