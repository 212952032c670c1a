r"""Encoders and their embeddings: recurrences of any cell, convolutions, or self-attention.

`Embedding` embeds tokens with their positions, for the encoder or the decoder of a Transformer. Other functions set
options, initialise parameters and collect attention weights for all models of blocks.

Attention needs one annotation per word, so that any encoder can serve a recurrent decoder. `make_encoder` makes a
`Stack` of cells, a `Bidirectional` one, or a `BlockEncoder`: the blocks of a Transformer's encoder, with self-attention
or with gated convolutions. Blocks have no last state, so that the decoder starts from the mean of their annotations.

Two layers can replace self-attention in an encoder's blocks, for comparisons as in table 1 of Vaswani et al. 2017
(arXiv:1706.03762). They have about as many parameters as attention's four matrices, $4 d^2$:

- `Convolution`: $(A \circ \sigma(B)) W$, where $[A; B]$ is a convolution over every word and `reach` words on each side
  of it: the gated linear units of Gehring et al. 2017 (arXiv:1705.03122), section 3.2. Departures: the width is
  $4 d / (2k + 1)$ for a kernel of k, and W projects it back to d, so that a wider kernel has no more parameters; a
  feed-forward net follows, as in every block.
- `Recurrence`: a GRU in each direction, each of half the width (Schuster and Paliwal 1997): $4.5 d^2$.
"""

# b sentences · n positions · m source positions · t tokens of all sentences · e width of the embeddings
# d width of the annotations · k width of a kernel · r rows · a heads
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    Block,
    Decoder,
    Embedded,
    Encoder,
    Heads,
    Lengths,
    Sines,
    Sinusoidal,
    SlicedProjection,
    Span,
    Start,
    State,
    call_records,
    split_packed,
)
from regard.kernels import Linear, backends, dropout, planning
from regard.models.config import BlocksConfig, Cell, EncoderDecoderConfig
from regard.models.recurrent import Bidirectional, Stack, make_linear, to_autocast_dtype

EVEN = 8  # matrix products are fast for widths that are multiples of this


class Embedding(nn.Module):
    """Token embeddings, times √d if `scaled`, combined with their positions, and dropout on the result."""

    def __init__(
        self,
        vocabulary: int,
        size: int,
        positions: str,
        join: str,
        length: int,
        dropout: float,
        *,
        sines: Sines = "interleaved",
        first: int | None = None,
        scaled: bool = True,
    ):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size)
        self.scale, self.dropout = math.sqrt(size) if scaled else 1.0, dropout
        self.positions: nn.Module | None = None
        if positions == "sinusoidal":
            self.positions = Sinusoidal(size, join=join, sines=sines, first=first)  # type: ignore[arg-type]
        elif positions == "learned":
            self.positions = Embedded(size, length, join=join)  # type: ignore[arg-type]
        self.mix = nn.Linear(2 * size, size) if join == "concatenate" else None
        nn.init.normal_(self.tokens.weight, std=size**-0.5)

    def forward(self, ids: Int[Tensor, "*b n"], span: Span | None = None, start: Start = 0) -> Float[Tensor, "*b n d"]:
        """Embed tokens with their positions."""
        if ids.is_cuda and (embedded := self.embed_fused(ids, span, start)) is not None:
            return embedded
        x: Tensor = self.tokens(ids)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = self.positions(x, start=start, span=span)
        if self.mix is not None:
            x = self.mix(x)
        return dropout(x, self.dropout) if self.training else x

    def embed_fused(self, ids: Int[Tensor, "*b n"], span: Span | None, start: Start) -> Float[Tensor, "*b n d"] | None:
        """Embed packed sequences in one kernel on a GPU, in autocast's dtype; None if the kernel cannot serve them."""
        packed, positions = split_packed(span)[0], self.positions
        if EMBEDDING.choose(self.describe(span, start, ids.device.type)).name != "fused":
            return None
        assert packed is not None
        assert isinstance(positions, Sinusoidal)
        from regard.kernels import dropout_triton

        dropout = self.dropout if self.training else 0.0
        waves = positions.table(packed.longest, ids.device).float()
        seed = dropout_triton.draw_seed(ids.device) if dropout else None
        half, place = torch.get_autocast_dtype("cuda"), packed.to(ids.device).queries[1]
        return dropout_triton.embed(ids, self.tokens.weight, self.scale, place, dropout, seed, table=waves, dtype=half)

    def describe(self, span: Span | None, start: Start, device: str) -> planning.Request:
        """Describe a call as a request to the table of embeddings."""
        if torch.compiler.is_compiling():  # torch.compile must not trace the rest
            return planning.Request(device, (), planning.compiling())
        packed, rest = split_packed(span)
        needs = ["padded sequences" if packed is None or rest else backends.PACKED]
        needs.append(planning.AUTOCAST if torch.is_autocast_enabled(device) else "single precision")
        if not (isinstance(start, int) and start == 0):
            needs.append("a start")
        if type(self.positions) is not Sinusoidal or self.mix is not None:
            needs.append("positions that are not added sines (model.positions)")
        if type(self.tokens) is not nn.Embedding or self.tokens.padding_idx is not None:
            needs.append("embeddings of one's own")
        if call_records.has_hooks(self):
            needs.append(planning.HOOKS)
        return planning.Request(device, (), tuple(needs))


EMBEDDING = planning.Table(
    "embedding",
    planning.Row(
        name="fused",
        devices=("cuda",),
        features=frozenset({backends.PACKED, planning.AUTOCAST}),
        conditions=(planning.NEEDS_TRITON,),
    ),
    planning.Row(name="torch", features=None),
)


def block_options(config: BlocksConfig) -> dict[str, Any]:
    """Return the options of a stack of blocks for a configuration."""
    own = ("norm", "dropout", "attention_dropout", "residual", "feed_forward", "activation")
    each = {name: getattr(config, name) for name in own}
    return {**each, "feed_dropout": config.dropout, "rotary": config.positions == "rotary"}


def name_activation(config: BlocksConfig) -> dict[str, str]:
    """Return a graph's symbol for the activation of feed-forward nets, by pattern; nothing for ReLU."""
    symbol = {"gelu": "· Φ(·)", "silu": "· σ(·)"}.get(config.activation)
    return {} if symbol is None else {r"feed\.1 ": symbol}


def initialise(model: nn.Module) -> None:
    """Initialise linear layers as Glorot and Bengio do, with biases of zero.

    Embeddings and recurrent cells keep their own initialisation. A model on the meta device stays unchanged.
    """
    if all(parameter.is_meta for parameter in model.parameters()):
        return
    sliced = {id(module.weight) for module in model.modules() if isinstance(module, SlicedProjection)}
    for name, parameter in model.named_parameters():
        if ".both." in name:
            continue
        if id(parameter) in sliced:
            for matrix in parameter.data:
                nn.init.xavier_uniform_(matrix)
        elif parameter.ndim > 1 and "tokens" not in name and "vectors" not in name:
            nn.init.xavier_uniform_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def cross_attentions(decoder: Decoder) -> list[Heads]:
    """Return the decoder's cross-attentions, from the first block up."""
    return [cast(Heads, cast(Block, block).cross) for block in decoder.blocks]


@contextmanager
def collect_weights(attentions: Sequence[Heads]) -> Iterator[list[Float[Tensor, "b a n m"]]]:
    """Collect the weights of all calls of these attentions within the context, with their autograd graph."""
    weights: list[Tensor] = []
    mine = threading.get_ident()

    def keep(module: Heads, arguments: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> None:
        if threading.get_ident() == mine:  # ignore other threads, which may search with the same model
            weights.append(module.look(*arguments, **options).weights)

    hooks = [each.register_forward_hook(keep, with_kwargs=True) for each in attentions]
    try:
        yield weights
    finally:
        for hook in hooks:
            hook.remove()


def step_with_coverage(
    decoder: Decoder, x: Float[Tensor, "r 1 d"], state: State, span: Span | None = None
) -> Float[Tensor, "r 1 d"]:
    """Take a step, and add the last block's cross-attention weights, averaged over heads, to the coverage."""
    with collect_weights(cross_attentions(decoder)[-1:]) as weights:
        x = decoder.step(x, state, span)
    state.row["coverage"].add_(weights[0].detach().mean(1).flatten(0, 1))
    return x


class Convolution(nn.Module):
    """A gated convolution over every word and its neighbours."""

    def __init__(self, size: int, reach: int):
        super().__init__()
        self.reach = reach
        kernel = 2 * reach + 1
        width = 4 * size // (2 * kernel + 1)
        self.width = max(1, width if width < 8 * EVEN else width // EVEN * EVEN)
        self.gated = Linear(kernel * size, 2 * self.width)
        self.output = Linear(self.width, size)

    def forward(self, x: Float[Tensor, "*b n d"], span: Span | None = None) -> Float[Tensor, "*b n d"]:
        """Convolve all words at once, with zeros beyond the ends of each sentence."""
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
    """A bidirectional GRU over the words."""

    def __init__(self, size: int):
        super().__init__()
        self.both = Bidirectional("gru", size, size // 2, 1)

    def forward(self, x: Float[Tensor, "*b n d"], span: Span | None = None) -> Float[Tensor, "*b n d"]:
        """Return the state [h→; h←] of every word."""
        packed, _ = split_packed(span)
        if packed is not None:
            packed = packed.to(x.device)
            return packed.unpad(self.both(packed.pad_queries(x), packed.offsets.diff().long()))
        _, length = word_positions(x, span)
        lengths = length.expand(*x.shape[:-2], 1).reshape(-1)
        output: Tensor = self.both(x.reshape(-1, *x.shape[-2:]), lengths)
        return output.view(x.shape)


def word_positions(x: Float[Tensor, "*b n d"], span: Span | None) -> tuple[Int[Tensor, "*p"], Int[Tensor, "*l"]]:
    """Return each word's position in its sentence, and the sentence's length; both broadcast to [*b n]."""
    packed, rest = split_packed(span)
    if packed is not None:
        row, place = packed.to(x.device).queries
        return place, packed.to(x.device).offsets.diff()[row]
    place = torch.arange(x.shape[-2], device=x.device)
    for part in rest:
        if isinstance(part, Lengths):
            return place, part.lengths.to(x.device, non_blocking=x.is_cuda)[..., None]
    return place, torch.full((1,), x.shape[-2], device=x.device)


class BlockEncoder(nn.Module):
    """Blocks of self-attention or gated convolutions over embedded words with sinusoidal positions.

    Embeddings of another width are projected first. With `reach`, a convolution over so many words on each side
    replaces self-attention.
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
        """Return the annotation of every position."""
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.positions.size)
        if self.project is not None:
            x = self.project(x)
        states: Tensor = self.stack(self.positions(x), span=Lengths(lengths))
        return to_autocast_dtype(states)

    def read(
        self, x: Float[Tensor, "b n e"], lengths: Int[Tensor, " b"]
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b 1 1 d"]]:
        """Return the annotations, and their mean in place of a recurrence's last state."""
        states = self(x, lengths)
        return states, pool_mean(states, lengths)[:, None, None]


def make_encoder(config: EncoderDecoderConfig, size: int) -> Stack | Bidirectional | BlockEncoder:
    """Build the encoder that a configuration names; `size` is a recurrence's width in one direction."""
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


def pool_mean(states: Float[Tensor, "b n d"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
    """Average each row's states; a row without states gets zeros."""
    length = lengths.to(states.device)[:, None]
    real = torch.arange(states.shape[1], device=states.device) < length
    return torch.where(real[..., None], states, 0.0).sum(1) / length.clamp(min=1)
