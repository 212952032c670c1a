r"""Encoders for a decoder that attends: a recurrence of any cell, convolutions, or self-attention.

Attention asks of an encoder no more than one annotation a word: what reads the source may be anything. `make_encoder`
makes a `Stack` of cells, a `Bidirectional` one, or `BlockEncoder`, the blocks of a Transformer's encoder, whose words
meet by self-attention or by a gated convolution of those that are near. Blocks have no last state from which a decoder
could start; it starts from the mean of their annotations.

Two layers mix words in an encoder's blocks in place of attention, to compare self-attention with, as table 1 of Vaswani
et al. 2017 (arXiv:1706.03762) does, with about as many parameters as its four matrices, $4 d^2$:

- `Convolution`: $(A \circ \sigma(B)) W$ with $[A; B]$ a convolution of every word and the `reach` words on each side of
  it: the gated linear units of Gehring et al. 2017 (arXiv:1705.03122), section 3.2. Departures: its width is
  $4 d / (2k + 1)$ for a kernel of k, and W brings it back to d, so that a wider kernel costs no more; a feed-forward
  net follows, as in every block.
- `Recurrence`: a GRU from either end, each of half the width (Schuster and Paliwal 1997): $4.5 d^2$.
"""

# b sentences · n positions · t tokens of all sentences · e width of the embeddings · d width of the annotations
# k width of a kernel
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Encoder, Lengths, Sinusoidal, Span, padded_index, split_packed
from regard.kernels import Linear
from regard.models.config import Cell, EncoderDecoderConfig
from regard.models.layers.cells import Bidirectional, Stack
from regard.models.layers.embedding import initialise
from regard.models.layers.recurrent import make_linear, to_autocast_dtype

EVEN = 8  # matrix products are quick with widths that are multiples of this


class Convolution(nn.Module):
    """A gated convolution that mixes every word with its neighbours."""

    def __init__(self, size: int, reach: int):
        super().__init__()
        self.reach = reach
        kernel = 2 * reach + 1
        width = 4 * size // (2 * kernel + 1)
        self.width = max(1, width if width < 8 * EVEN else width // EVEN * EVEN)
        self.gated = Linear(kernel * size, 2 * self.width)
        self.output = Linear(self.width, size)

    def forward(self, x: Float[Tensor, "*b n d"], span: Span | None = None) -> Float[Tensor, "*b n d"]:
        """Convolve all words at once; beyond the ends of a sentence there are zeros."""
        place, length = word_positions(x, span)
        near = []
        for step in range(-self.reach, self.reach + 1):
            there = (place + step >= 0) & (place + step < length)
            near.append(torch.where(there[..., None], x.roll(-step, -2), 0.0))
        output: Tensor = self.output(F.glu(self.gated(torch.cat(near, -1)), -1))
        return output

    def extra_repr(self) -> str:
        return f"reach={self.reach}, width={self.width}"


class Recurrence(nn.Module):
    """A recurrence over the words, one after the other, from both ends."""

    def __init__(self, size: int):
        super().__init__()
        self.both = Bidirectional("gru", size, size // 2, 1)

    def forward(self, x: Float[Tensor, "*b n d"], span: Span | None = None) -> Float[Tensor, "*b n d"]:
        """Return the states [h→; h←] of every word."""
        packed, _ = split_packed(span)
        if packed is not None:
            packed = packed.to(x.device)
            row, place = packed.queries
            index = padded_index(packed.offsets, packed.longest)
            lengths = packed.offsets.diff().long()
            states = self.both(PadRows.apply(x, index, row, place), lengths)
            unpadded: Tensor = UnpadRows.apply(states, index, row, place, lengths)
            return unpadded
        _, length = word_positions(x, span)
        lengths = length.expand(*x.shape[:-2], 1).reshape(-1)
        output: Tensor = self.both(x.reshape(-1, *x.shape[-2:]), lengths)
        return output.view(x.shape)


def word_positions(x: Float[Tensor, "*b n d"], span: Span | None) -> tuple[Int[Tensor, "*p"], Int[Tensor, "*l"]]:
    """Return the position of each word in its sentence, and the sentence's length; both broadcast to [*b n]."""
    packed, rest = split_packed(span)
    if packed is not None:
        row, place = packed.to(x.device).queries
        return place, packed.to(x.device).offsets.diff()[row]
    place = torch.arange(x.shape[-2], device=x.device)
    for part in rest:
        if isinstance(part, Lengths):
            return place, part.lengths.to(x.device, non_blocking=x.is_cuda)[..., None]
    return place, torch.full((1,), x.shape[-2], device=x.device)


class PadRows(torch.autograd.Function):
    """Pad [t d] to [b n d] with real rows that are never used, so that the gradient is a choice of rows, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, row: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(row, place)
        return x[index]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        row, place = ctx.saved_tensors
        return grad[row, place], None, None, None


class UnpadRows(torch.autograd.Function):
    """Remove padding, [b n d] -> [t d]; gaps have no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, row: Tensor, place: Tensor, lengths: Tensor) -> Tensor:
        ctx.save_for_backward(index, lengths)
        return x[row, place]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, lengths = ctx.saved_tensors
        real = torch.arange(index.shape[1], device=index.device) < lengths[:, None]
        return torch.where(real[..., None], grad[index], 0.0), None, None, None, None


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
