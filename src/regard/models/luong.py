r"""Luong's models: a stacked encoder and decoder, attention from the current state, global or local.

Luong, Pham and Manning 2015 (arXiv:1508.04025), section 3.

- The decoder starts from the encoder's last states, layer by layer; $h_t$ is its top state *after* reading a word.
- $c_t = \sum_j a_{tj} \bar h_j$; scores dot, general, concat ($v^\top \tanh(W [h_t; \bar h_j])$) and location
  ($(W h_t)_j$, global only); spans global, local-m ($p_t = t$) and local-p ($p_t$ predicted).
- $\tilde h_t = \tanh(W_c [c_t; h_t])$, and the readout reads it.
- Input feeding (section 3.3): the next step's input is $[E y_t; \tilde h_t]$, so that a step can use the alignments of
  earlier ones; the first $\tilde h$ is zero. Without input feeding, one attention call serves all steps.

`reverse` reverses each source sentence within its length for the encoder alone. The annotations are in the order of the
source, so that weights can be read as alignments and local-m starts at the beginning of the sentence.

The encoder can be of any type (`encoders`): another cell, convolutions or self-attention. Then the decoder's first
states are $\tanh(W_0 \bar h_m)$, where $\bar h_m$ is the last state of the encoder's top layer, or the mean annotation.

Departures: `bidirectional` reads in both directions, each with half of the width, as Bahdanau's encoder does. The
concat score (`Additive`) has a bias inside the tanh, and the readout has one; the paper has $W_a [h_t; \bar h_j]$ and
$W_s \tilde h_t$ alone. Location scores are normalised over a sentence's words, not over all `length` positions.

Dropout applies to embeddings, between layers and before the readout, never from step to step: $\tilde h_t$ is fed
without dropout. Embeddings start normal with deviation 1, and the readout with 3/√d, since h̃ is small; `recurrent`
describes how cells start.
"""

# b sentences · m source positions · n target positions · d width · g gates · l layers · p parts of a state · r rows
from collections.abc import Callable
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Attention,
    Dot,
    General,
    Location,
    Monotonic,
    Predictive,
    Prepared,
    Score,
    Span,
    State,
)
from regard.kernels import SpanLimits, Window
from regard.models.config import LuongConfig
from regard.models.contract import Memory, Notation, Reading, Tokens, name_additive_stages
from regard.models.encoders import make_encoder
from regard.models.recurrent import (
    PARTS,
    Dropout,
    RecurrentModel,
    Stack,
    attend_rows,
    can_bypass,
    make_linear,
    make_readout,
    reverse_rows,
    start_attending,
    without_autocast,
)


class LuongModel(RecurrentModel):
    """A stacked encoder-decoder with attention from the decoder's current state, and input feeding."""

    def __init__(self, config: LuongConfig, source: int, target: int):
        super().__init__()
        self.config = config
        size, words = config.size, config.embedding
        self.source, self.target = nn.Embedding(source, words), nn.Embedding(target, words)
        self.encoder = make_encoder(config, size // 2 if config.bidirectional else size)
        self.decoder = Stack(
            config.cell,
            words + config.input_feeding * size,
            size,
            config.layers,
            config.dropout,
            config.nonlinearity,
        )
        span = Predictive(size, config.radius) if config.span == "local-p" else None
        scores: dict[str, Callable[[], Score]] = {
            "dot": Dot,
            "general": lambda: General(size, size),
            "concat": lambda: Additive(size, size, hidden=size),
            "location": lambda: Location(size, config.length),
        }
        self.attention = Attention(scores[config.score](), span=span)
        self.attentional = make_linear(2 * size, size, bias=False)
        self.dropout = Dropout(config.dropout)
        self.readout = make_readout(size, target, 3.0)
        self.begin: nn.Module | None = None
        if config.encoder_name != config.cell:
            self.begin = make_linear(size, config.layers * PARTS[config.cell] * size)

    def encode(self, source: Tokens) -> Memory:
        """Encode the source into annotations, in its word order, and the decoder's first states."""
        ids, lengths = source.padded_ids, source.lengths
        if self.config.reverse:
            ids = reverse_rows(ids, lengths)
        x = self.dropout(self.source(ids))
        states, end = self.encoder.read(x, lengths)
        if self.begin is not None:
            first: Tensor = torch.tanh(self.begin(end[:, -1, 0]))
            end = first.unflatten(-1, (self.config.layers, -1, self.config.size))
        if self.config.reverse:
            states = reverse_rows(states, lengths)
        return Memory(source.unpad(states), source.span, {"start": end})

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n d"], dict[str, Tensor]]:
        """Take all steps; with input feeding the attention runs step by step, without it once for all steps."""
        words, keys = self.dropout(self.target(target.padded_ids)), memory.prepare(self.attention)
        state = memory.sentence["start"]
        if self.config.input_feeding:
            hidden = self.decode_with_feeding(words, keys, state)
        else:
            states, _ = self.decoder(words, state)
            hidden = self.attend(states, self.attention(states, keys, span=self.window(0)))
        return target.unpad(self.dropout(hidden)), {}

    @without_autocast("cuda")
    def decode_with_feeding(
        self, words: Float[Tensor, "b n e"], keys: Prepared, state: Float[Tensor, "b l p d"]
    ) -> Float[Tensor, "b n d"]:
        """Run the recurrence with input feeding."""
        first, look = self.decoder.each[0], self.choose_attend(keys)
        fed = words.new_zeros(len(words), self.config.size)
        hidden = []
        for t, word in enumerate(first.project(words).unbind(1)):
            top, state = self.decoder.step(word + self.fed(fed), state)
            fed = self.attend(top, look(top[:, None], t)[:, 0])
            hidden.append(fed)
        return torch.stack(hidden, 1)

    def choose_attend(self, keys: Prepared) -> Callable[[Float[Tensor, "b 1 d"], int], Float[Tensor, "b 1 d"]]:
        """Return the function that computes a step's contexts: the attention, or the same in three plain operations.

        With one query per row, choosing a backend would take most of an attention call.
        """
        if self.config.span != "global" or not can_bypass(self.attention, scores=(Dot, General)):
            return lambda query, t: self.attention(query, keys, span=self.window(t))
        assert keys.length is not None
        there = torch.arange(keys.keys.shape[1], device=keys.keys.device) < keys.length[:, None]
        shut = torch.zeros_like(there, dtype=keys.keys.dtype).masked_fill_(~there, torch.finfo(keys.keys.dtype).min)
        # The softmax gives an empty sentence even weights, so its values must be zero.
        turned, values, shut = keys.keys.mT, keys.values * there[..., None], shut[:, None]
        return lambda query, t: torch.bmm(torch.softmax(torch.baddbmm(shut, query, turned), -1), values)

    def fed(self, attentional: Float[Tensor, "r d"]) -> Float[Tensor, "r g"]:
        """Compute the part of the first layer's projected input that comes from the last attentional state."""
        return self.decoder.each[0].project(attentional, self.config.embedding, bias=False)

    def attend(self, states: Float[Tensor, "*b d"], contexts: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """Compute h̃ = tanh(W [c; h])."""
        return torch.tanh(self.attentional(torch.cat([contexts, states], -1)))

    def window(self, step: int) -> Span | None:
        """Return local-m's window for the query of a step, shared by all rows; None with other spans."""
        return Monotonic(self.config.radius, step) if self.config.span == "local-m" else None

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return the state before the first step; annotations are projected once."""
        state = start_attending(self.attention, memory, memory.sentence["start"], rows, coverage)
        states = state.row["state"]
        if self.config.input_feeding:
            state.row["fed"] = states.new_zeros(len(states), self.config.size)
        if self.config.span == "local-m":
            state.row["step"] = torch.zeros(len(states), dtype=torch.long, device=states.device)
        return state

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Read one word of every row; rows may be at different steps."""
        row = state.row
        word = self.decoder.each[0].project(self.dropout(self.target(tokens)))
        if self.config.input_feeding:
            word = word + self.fed(row["fed"])
        top, moved = self.decoder.step(word, row["state"])
        span = None
        if self.config.span == "local-m":
            span = WindowAt(self.config.radius, row["step"].view(-1, state.rows).to(top.dtype))
            row["step"].add_(1)
        hidden = self.attend(top, attend_rows(self.attention, top, state, span))
        row["state"].copy_(moved)
        if self.config.input_feeding:
            row["fed"].copy_(hidden)
        return self.output(self.dropout(hidden)), state

    @cached_property
    def notation(self) -> Notation:
        """Return the paper's formulas for this score and span."""
        config = self.config
        scores = {
            "dot": "score(h_t, h̄_s) = h_t^⊤ h̄_s",
            "general": "score(h_t, h̄_s) = h_t^⊤ W_a h̄_s",
            "concat": "score(h_t, h̄_s) = v_a^⊤ tanh(W_a [h_t; h̄_s])",
            "location": "W_a h_t",
        }
        own = {"decoder:attention score$": scores[config.score]}
        if not config.has_recurrent_encoder:
            own["begin"] = "W_0 Σ_s h̄_s / m"
        if config.span == "local-p":
            own |= {"decoder:attention weights$": "align(h_t, h̄_s)", "decoder:attention gate$": "a_t(s)"}
        return Notation(
            {
                **name_additive_stages("h_t", "h̄_j", "a_tj", "c_t", "the decoder's state after the word just read"),
                "k": ("h̄_j", "the annotation of every source word"),
                "W k": ("W h̄_j", "the annotation of every source word, projected"),
                "e": ("e_tj = score(h_t, h̄_j)", ""),
            },
            readout=(
                Reading("attentional", "input", "[c_t; h_t]", "context and state side by side", main=False),
                Reading(
                    "readout", "input", "h̃_t = tanh(W_c [c_t; h_t])", "the attentional state: what the readout reads"
                ),
            ),
            boxes=(own, BOXES),
        )


class WindowAt(Span):
    """The span of local-m attention for queries at different steps: the rows of each sentence."""

    def __init__(self, radius: int, centres: Float[Tensor, "s rows"]):
        self.radius, self.centres = radius, centres

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        """Limit attention to keys near the step of each query."""
        return limits.with_window(Window(self.radius, centre=self.centres))

    def __repr__(self) -> str:
        return f"WindowAt({self.radius}, of {list(self.centres.shape)})"


BOXES = {
    "encoder:input": "x_1 … x_m",
    "decoder:input": "y_0 … y_{n−1}",
    "source Embedding": "E x_s",
    "target Embedding": "E y_{t−1}",
    r"forwards\.\d+ Layer": "→h^{(ℓ)}_s",
    r"backwards\.\d+ Layer": "←h^{(ℓ)}_s",
    "encoder cat$": "h̄^{(ℓ)}_s = [→h^{(ℓ)}_s; ←h^{(ℓ)}_s]",
    r"encoder\.layers\.\d+ Layer": "h̄^{(ℓ)}_s",
    "final_norm": "h̄_s",
    "begin": "W_0 h̄_m",
    "encoder: tanh": "h_0",
    r"decoder\.layers\.\d+ Layer": "h^{(ℓ)}_t",
    r"decoder:attention\.score General": "W_a h̄_s",
    r"decoder:attention\.score\.query": "W_a [h_t; 0]",
    r"decoder:attention\.score\.key": "W_a [0; h̄_s]",
    "decoder:attention score$": "score(h_t, h̄_s)",
    "decoder:attention weights$": "a_t(s)",
    "decoder:attention sum$": "c_t = Σ_s a_t(s) h̄_s",
    "decoder: cat$": "[c_t; h_t]",
    "attentional": "W_c [c_t; h_t]",
    "decoder: tanh": "h̃_t",
    "readout": "W_s h̃_t",
    " softmax$": "p(y_t | y_{<t}, x)",
}
