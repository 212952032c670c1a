r"""Encoders for a decoder that attends: a recurrence of any cell, convolutions, or self-attention.

Attention asks of an encoder no more than one annotation a word: what reads the source may be anything. `make_encoder`
makes a `Stack` of cells, a `Bidirectional` one, or `BlockEncoder`, the blocks of a Transformer's encoder, whose words
meet by self-attention or by a gated convolution of those that are near (`mixing`). Blocks have no last state from which
a decoder could start; it starts from the mean of their annotations.
"""

# b sentences · n positions · e width of the embeddings · d width of the annotations
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Encoder, Lengths, Sinusoidal
from regard.models.config import Cell, EncoderDecoderConfig
from regard.models.layers.cells import Bidirectional, Stack
from regard.models.layers.embedding import initialise
from regard.models.layers.mixing import Convolution
from regard.models.layers.recurrent import make_linear, to_autocast_dtype


class BlockEncoder(nn.Module):
    """Embedded words with sinusoidal positions, re-read by blocks of self-attention or of gated convolutions.

    Embeddings of another width are projected first. With `reach`, words meet by a convolution of so many on each side.
    """

    def __init__(self, inputs: int, size: int, layers: int, heads: int, reach: int | None, dropout: float):
        super().__init__()
        self.project = None if inputs == size else make_linear(inputs, size)
        self.positions = Sinusoidal(size)
        self.stack = Encoder(
            size,
            heads,
            layers,
            dropout=dropout,
            feed_dropout=dropout,
            mixing=None if reach is None else lambda: Convolution(size, reach),
        )
        initialise(self.stack)

    def forward(self, x: Float[Tensor, "b n e"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b n d"]:
        """The annotation of every position."""
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.positions.size)
        if self.project is not None:
            x = self.project(x)
        states: Tensor = self.stack(self.positions(x), span=Lengths(lengths))
        return to_autocast_dtype(states)


def make_encoder(config: EncoderDecoderConfig, size: int) -> Stack | Bidirectional | BlockEncoder:
    """Make the encoder that a configuration asks for; `size` is the width of a recurrence in one direction."""
    inputs, layers, dropout = config.embedding, config.layers, config.dropout
    match config.encoder_name:
        case "self-attention":
            return BlockEncoder(inputs, config.size, layers, config.heads, None, dropout)
        case "convolution":
            return BlockEncoder(inputs, config.size, layers, config.heads, config.reach or 1, dropout)
        case "rnn" | "gru" | "lstm" as name:
            cell: Cell = name
            recurrence = Bidirectional if config.bidirectional else Stack
            return recurrence(cell, inputs, size, layers, dropout, config.nonlinearity)


def mean_annotation(states: Float[Tensor, "b n d"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
    """Average over each sentence's words; zero for a sentence that has none."""
    length = lengths.to(states.device)[:, None]
    real = torch.arange(states.shape[1], device=states.device) < length
    return torch.where(real[..., None], states, 0.0).sum(1) / length.clamp(min=1)
