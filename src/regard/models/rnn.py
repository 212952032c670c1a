r"""The fixed-context encoder-decoder: the encoder turns a sentence into one vector, which the decoder reads.

The encoder reads $x_1 \dots x_m$ into $h_m$; the decoder starts from $s_0$ and reads its own words.

- `context = "every"` (Cho et al. 2014, arXiv:1406.1078, section 2.2 and appendix A): the top layer's context $c = h_m$
  goes into the cell, $s_t = f(s_{t-1}, [E y_{t-1}; c])$, and into a deep output,
  $\tilde t = U s_t + V E y_{t-1} + C c$, followed by maxout, the maximum of each pair of numbers. Cho's c is a tanh of
  $h_m$; here only $s_0$ has a tanh, if `start` says so.
- `context = "start"` (Sutskever et al. 2014, arXiv:1409.3215): only $s_0$ depends on the source, and the readout reads
  the top state.

Each layer's $s_0$ is zero, the last state of the encoder's layer (for an LSTM with its cell), or $\tanh(V h_m)$, where
an LSTM's cell has its own V. `reverse` reverses each source sentence within its length. V, the deep output and the
readout have biases, which the papers leave out of their formulas.

Dropout applies to embeddings, between layers and before the readout, never from step to step. Embeddings start normal
with deviation 1, and the readout with 1/√d; `recurrent` describes how cells start.
"""

# b sentences · m source positions · n target positions · d width · l layers · p parts of a state · r rows · v words
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import State
from regard.models.config import RNNConfig
from regard.models.contract import Memory, Notation, Reading, Tokens
from regard.models.recurrent import (
    PARTS,
    Dropout,
    RecurrentModel,
    Stack,
    make_linear,
    make_readout,
    maxout,
    repeat_rows,
    reverse_rows,
)


class RNNModel(RecurrentModel):
    """A recurrent encoder and decoder with a fixed context vector between them."""

    def __init__(self, config: RNNConfig, source: int, target: int):
        super().__init__()
        self.config = config
        size, parts = config.size, PARTS[config.cell]
        every = config.context == "every"
        self.source, self.target = nn.Embedding(source, config.embedding), nn.Embedding(target, config.embedding)
        stack = (config.layers, config.dropout, config.nonlinearity)
        self.encoder = Stack(config.cell, config.embedding, size, *stack)
        self.decoder = Stack(config.cell, config.embedding + every * size, size, *stack)
        if config.start == "tanh":
            self.begin = nn.ModuleList(make_linear(size, parts * size) for _ in range(config.layers))
        if every:
            self.deep = make_linear(size + config.embedding + size, 2 * size)
        self.dropout = Dropout(config.dropout)
        self.readout = make_readout(size, target)

    def encode(self, source: Tokens) -> Memory:
        """Return the encoder's states, with the last one as `context` and the decoder's first state as `start`.

        The states are in the order of the source, even if `reverse` is set.
        """
        ids, lengths = source.padded_ids, source.lengths
        if self.config.reverse:
            ids = reverse_rows(ids, lengths)
        states, end = self.encoder(self.dropout(self.source(ids)), lengths=lengths)
        if self.config.reverse:
            states = reverse_rows(states, lengths)
        sentence = {"context": end[:, -1, 0], "start": self.first(end)}
        return Memory(source.unpad(states), source.span, sentence)

    def first(self, end: Float[Tensor, "b l p d"]) -> Float[Tensor, "b l p d"]:
        """Compute s₀ from the encoder's last states."""
        if self.config.start == "zero":
            return torch.zeros_like(end)
        if self.config.start == "copy":
            return end
        mapped = [layer(end[:, index, 0]) for index, layer in enumerate(self.begin)]
        return torch.tanh(torch.stack(mapped, 1)).view_as(end)

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n d"], dict[str, Tensor]]:
        """Take all steps at once, since teacher forcing makes all inputs known."""
        words = self.dropout(self.target(target.padded_ids))
        x = words
        if self.config.context == "every":
            context = memory.sentence["context"][:, None].expand(-1, words.shape[1], -1)
            x = torch.cat([words, context], -1)
        states, _ = self.decoder(x, memory.sentence["start"])
        if self.config.context == "every":
            states = maxout(self.deep(torch.cat([states, x], -1)))
        return target.unpad(self.dropout(states)), {}

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return the state before the first step; without attention there is no coverage."""
        sentence = {"context": memory.sentence["context"]}
        return State(sentence, {"state": repeat_rows(memory.sentence["start"], rows)}, rows)

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Read one word of every row."""
        x = self.dropout(self.target(tokens))
        if self.config.context == "every":
            x = torch.cat([x, state.sentence["context"].repeat_interleave(state.rows, 0)], -1)
        hidden, moved = self.decoder.step(self.decoder.each[0].project(x), state.row["state"])
        state.row["state"].copy_(moved)
        if self.config.context == "every":
            hidden = maxout(self.deep(torch.cat([hidden, x], -1)))
        return self.output(self.dropout(hidden)), state

    @cached_property
    def notation(self) -> Notation:
        """Return the formulas of Cho, with c at every step, or of Sutskever, with the source in s₀ alone."""
        words = "the decoder's state after the word just read"
        if self.config.context == "start":
            return Notation(
                readout=(Reading("readout", "input", "s_t = f(s_{t−1}, E y_{t−1})", words),),
                boxes=(BOXES,),
            )
        return Notation(
            readout=(
                Reading("decoder.layers.*", "state", "s_t = f(s_{t−1}, [E y_{t−1}; c])", words),
                Reading("deep", "input", "[s_t; E y_{t−1}; c]", "state, word and the fixed context c", main=False),
                Reading("readout", "input", "t̃_t = maxout(U s_t + V E y_{t−1} + C c)", "what the readout reads"),
            ),
            boxes=(BOXES,),
        )


BOXES = {
    "encoder:input": "x_1 … x_m",
    "decoder:input": "y_0 … y_{n−1}",
    "source Embedding": "E x_j",
    "target Embedding": "E y_{i−1}",
    r"encoder\.layers\.\d+ Layer": "h^{(ℓ)}_j",
    "begin": "V h^{(ℓ)}_m",
    "encoder: tanh": "s_0",
    "decoder: cat$": "[E y_{i−1}; c]",
    r"decoder\.layers\.\d+ Layer": "s^{(ℓ)}_i",
    "decoder: cat 2": "[s_i; E y_{i−1}; c]",
    "deep": "t̃_i",
    "maxout": "t_i",
    " softmax$": "p(y_i | y_{<i}, x)",
}
