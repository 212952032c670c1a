r"""The Transformer: an encoder-decoder of multi-head attention and feed-forward blocks, with positions.

Vaswani et al. 2017 (arXiv:1706.03762), figure 1. Embeddings are multiplied by √d and shared with the output projection
(section 3.4). The paper's own form is `norm="post"` with sinusoidal positions; `norm="pre"`, the default of the small
presets, trains without a long warm-up (arXiv:2002.04745). Departures: learned, rotary and ALiBi positions; positions
that are concatenated with the embedding and projected back to the width of the model, instead of added; scores that
are additive, or dot products without their scale; heads that each read a slice of the input. Models of other toolkits
differ in details: `activation`, the order of `sines`, `scale_embeddings`, `output_bias`, `start_as_end`.
"""

# b sentences · m source positions · n target positions · d width · v vocabulary · r rows
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    MAX_KEYS,
    Additive,
    Alibi,
    Decoder,
    Dot,
    Encoder,
    Lengths,
    Mask,
    Monotonic,
    Score,
    Span,
    Start,
    join,
)
from regard.data import END, START
from regard.errors import ArgumentError
from regard.kernels import Linear, backends
from regard.models.config import WINDOW_RADIUS, TransformerConfig
from regard.models.contract import Memory, Model, Notation, State, Tokens
from regard.models.encoders import (
    Convolution,
    Embedding,
    Recurrence,
    block_options,
    initialise,
    name_activation,
    step_with_coverage,
)


class TransformerModel(Model):
    """A Transformer: an encoder and a decoder, each a stack of blocks."""

    def __init__(self, config: TransformerConfig, source: int, target: int):
        super().__init__()
        if config.tied == "all" and source != target:
            raise ArgumentError(f"tied: all given, expected one vocabulary, not {source} and {target} pieces")
        self.config = config
        self.limit = config.known_positions()
        embed = (config.size, config.positions, config.join, config.length, config.dropout)
        form: dict[str, Any] = {
            "sines": config.sines,
            "first": config.first_position,
            "scaled": config.scale_embeddings,
        }
        self.source = Embedding(source, *embed, **form)
        self.target = self.source if config.tied == "all" else Embedding(target, *embed, **form)
        scores: dict[str, Callable[[int], Score] | None] = {  # by a head's width; None: the scaled dot product
            "additive": lambda width: Additive(width, width, hidden=width),
            "dot": None if config.scaled else lambda width: Dot(),
        }
        shared = block_options(config) | {"depth": config.depth, "score": scores[config.score], "split": config.split}
        layers = config.layers if config.decoder_layers is None else config.decoder_layers
        mixings: dict[str, Callable[[], nn.Module]] = {
            "convolution": lambda: Convolution(config.size, window_radius(config)),
            "recurrence": lambda: Recurrence(config.size),
        }
        mixing = mixings.get(config.mixing)
        self.encoder = Encoder(config.size, config.heads, config.layers, config.hidden, mixing=mixing, **shared)
        self.decoder = Decoder(config.size, config.heads, layers, config.hidden, **shared)
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = config.norm_epsilon
        self.readout = Linear(config.size, target, bias=config.output_bias)
        initialise(self)
        if config.tied != "none":
            self.readout.weight = self.target.tokens.weight
        if config.fixed_bias:
            self.readout.bias.requires_grad_(False)

    @property
    def packs(self) -> bool:
        """Return whether packed sentences need no padding: not with ALiBi, additive scores or unusual head widths."""
        config, width = self.config, self.config.size // self.config.heads
        if config.positions == "alibi" or config.score != "dot" or config.depth not in (None, width):
            return False
        return width <= backends.ONE_TILE_WIDTH or (
            width <= backends.VARLEN_WIDTH and width % 8 == 0 and not config.attention_dropout
        )

    def bias(self, start: Start = 0) -> Span | None:
        """Return the bias of ALiBi; None with other positions."""
        return Alibi(self.config.heads, start) if self.config.positions == "alibi" else None

    def window(self, source: Tokens) -> Span | None:
        """Return the window of the encoder's self-attention; None unless `mixing` is "window"."""
        if self.config.mixing != "window":
            return None
        reach, n = window_radius(self.config), source.ids.shape[-1]
        if source.ids.is_cuda and source.ids.ndim == 2 and n <= MAX_KEYS:
            # For few words a mask is quick to build; a kernel for windows would have to be compiled first.
            place = torch.arange(n, device=source.ids.device)
            return Mask((place[:, None] - place).abs() <= reach)
        return Monotonic(reach)

    def encode(self, source: Tokens) -> Memory:
        """Encode the source tokens with the encoder's stack."""
        x = self.source(source.ids, source.span)
        return Memory(self.encoder(x, span=join(source.span, self.bias(), self.window(source))), source.span)

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n d"], dict[str, Tensor]]:
        """Take all steps at once under the causal mask."""
        x = self.target(self.read_ids(target.ids), target.span)
        # Padding comes last, so that the causal mask hides it from the real positions without another mask.
        span = join(None if isinstance(target.span, Lengths) else target.span, self.bias())
        return self.decoder(x, memory.states, span=span, memory_span=memory.cross_span(target)), {}

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return empty caches, and the memory's keys and values projected once for each block."""
        memory = memory.pad()
        state = self.decoder.start(memory.states, size, memory.span, rows=rows)
        for part in state.row.values():
            part.private_rows = self.config.positions == "alibi"
        if coverage:
            state.row["coverage"] = memory.states.new_zeros(len(memory.states) * rows, memory.states.shape[1])
        return state

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Take one step: one query per row over the caches."""
        start = self.decoder.position(state)
        ids = tokens[:, None]
        x = self.target(self.read_ids(ids) if self.config.start_as_end else ids, None, start)
        bias = self.bias(start) if self.config.positions == "alibi" else None
        if "coverage" not in state.row:
            x = self.decoder.step(x, state, bias)
        else:
            x = step_with_coverage(self.decoder, x, state, bias)
        return self.output(x[:, 0]), state

    def read_ids(self, ids: Int[Tensor, "*b n"]) -> Int[Tensor, "*b n"]:
        """Return the ids that the decoder embeds: with `start_as_end`, END replaces START."""
        return ids.masked_fill(ids == START, END) if self.config.start_as_end else ids

    @cached_property
    def notation(self) -> Notation:
        """Return the symbols of the paper; its formulas are those of general attention."""
        return Notation(boxes=(name_activation(self.config), BOXES))


def window_radius(config: TransformerConfig) -> int:
    """Return the number of words on each side that a window or a convolution covers."""
    return WINDOW_RADIUS[config.mixing] if config.reach is None else config.reach


BOXES = {
    "decoder:target.tokens ": "E y_i",
    "decoder:target.positions": "y_i + p_i",
    "decoder: softmax$": "p(y_i | y_{<i}, x)",
}
