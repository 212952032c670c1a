r"""RNNsearch: a bidirectional encoder, and a decoder that attends to the source at every word.

Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), section 3 and appendix A.

- Annotations $h_j = [\overrightarrow{h}_j; \overleftarrow{h}_j]$.
- $s_0 = \tanh(W_s \overleftarrow{h}_1)$; an LSTM's cell starts from a tanh with its own matrix.
- $c_i = \sum_j a_{ij} h_j$, $a_{ij} = \mathrm{softmax}_j(v^\top \tanh(W s_{i-1} + U h_j + b))$: the query is the state
  *before* the word.
- $s_i = f(s_{i-1}, [E y_{i-1}; c_i])$, where f is any cell of `recurrent`; its GRU applies the reset gate to U h, the
  paper's to h. Cells, $s_0$, the score, the deep output and the readout have biases, which the formulas leave out.
- $\tilde t_i = U_o s_i + V_o E y_{i-1} + C_o c_i + b_o$, then maxout over pairs of numbers, then the readout. The
  paper's text has $s_i$ here, its appendix $s_{i-1}$ (`output = "previous"`).

The encoder can be of any type (`encoders`): another cell; a unidirectional recurrence, whose last state then gives
$s_0$; or convolutions or self-attention, where the mean of the annotations gives $s_0$.

Dropout applies to embeddings, between the encoder's layers and before the readout, never from step to step. Embeddings
start normal with deviation 1, and the readout with 1/√d; `recurrent` describes how cells start.

With teacher forcing, everything that does not depend on the state is computed for all steps at once: the words' part of
the cell's input before the recurrence, and the deep output after it. The recurrence of a GRU or an LSTM has its own
backward pass (`kernels/operations/rnnsearch.py`). The plain loop runs instead for Elman's cell, and if the attention or
the cell has a hook or a backend is forced.
"""

# b sentences · m source positions · n target positions · d width · g gates · p parts of a state · r rows · v vocabulary
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Additive, Attention, Prepared, State
from regard.kernels import linear, planning
from regard.kernels import rnnsearch_cpu as cpu
from regard.models.config import RNNSearchConfig
from regard.models.contract import Memory, Notation, Reading, Tokens, name_additive_stages
from regard.models.encoders import make_encoder
from regard.models.recurrent import (
    PARTS,
    Bidirectional,
    Dropout,
    Layer,
    RecurrentModel,
    attend_rows,
    describe_recurrence,
    make_linear,
    make_readout,
    maxout,
    start_attending,
    to_autocast_dtype,
    without_autocast,
)

RECURRENCE = planning.Table(
    "decoder of RNNsearch",
    planning.Row(
        name="triton",
        devices=("cuda",),
        dtypes=planning.SINGLE_OR_HALF,
        features=frozenset({planning.AUTOCAST}),
        conditions=(planning.NEEDS_TRITON,),
    ),
    planning.Row(
        name="written out",
        features=frozenset({planning.AUTOCAST}),
        conditions=(
            planning.Condition(
                lambda request: (
                    request.device == "cuda"
                    or (request.dtypes[0] in planning.FULL and planning.AUTOCAST not in request.features)
                ),
                "on a CPU it takes float32 and float64, without autocast",
            ),
        ),
    ),
    planning.Row(name="step by step", features=None),
)


class RNNSearchModel(RecurrentModel):
    """An encoder-decoder with bidirectional annotations, additive attention from the previous state, and maxout."""

    def __init__(self, config: RNNSearchConfig, source: int, target: int):
        super().__init__()
        self.config = config
        size, words = config.size, config.embedding
        self.source, self.target = nn.Embedding(source, words), nn.Embedding(target, words)
        self.encoder = make_encoder(config, size)
        self.begin = make_linear(size, PARTS[config.cell] * size)
        annotation = config.annotation_size
        self.attention = Attention(Additive(size, annotation, config.hidden))
        self.cell = Layer(config.cell, words + annotation, size, config.nonlinearity)
        self.deep = make_linear(size + words + annotation, 2 * config.maxout)
        self.dropout = Dropout(config.dropout)
        self.readout = make_readout(config.maxout, target)

    def encode(self, source: Tokens) -> Memory:
        """Encode the source into annotations and the decoder's first state."""
        words = self.dropout(to_autocast_dtype(self.source(source.padded_ids)))
        lengths = source.lengths
        if isinstance(self.encoder, Bidirectional):
            annotations = self.encoder(words, lengths)
            summary = annotations[:, 0, self.config.size :] * (lengths > 0).to(annotations)[:, None]
        else:
            annotations, end = self.encoder.read(words, lengths)
            summary = end[:, -1, 0]
        start = torch.tanh(self.begin(summary)).unflatten(-1, (-1, self.config.size))
        return Memory(source.unpad(annotations), source.span, {"start": start})

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n d"], dict[str, Tensor]]:
        """Take all steps: the recurrence step by step, the deep output at once."""
        words = self.dropout(to_autocast_dtype(self.target(target.padded_ids)))
        states, contexts, extra = self.recur(words, memory.prepare(self.attention), memory)
        if self.config.output == "previous":
            states = torch.cat([memory.sentence["start"][:, :1, :], states[:, :-1]], 1)
        return target.unpad(self.deep_output(states, words, contexts)), extra

    def recur(
        self, words: Float[Tensor, "b n e"], keys: Prepared, memory: Memory
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n dv"], dict[str, Tensor]]:
        """Compute the state and the context of every step; a written-out recurrence returns the weights as well."""
        state = memory.sentence["start"]
        row = RECURRENCE.choose(self.describe(words)).name
        if row != "step by step":
            return (self.recur_triton if row == "triton" else self.recur_cpu)(words, keys, state)
        projected = self.cell.project(words)
        states, contexts = [], []
        for word in projected.unbind(1):
            contexts.append(self.attention(state[:, :1], keys)[:, 0])
            state = self.step_cell(word, state, contexts[-1])
            states.append(state[:, 0])
        return torch.stack(states, 1), torch.stack(contexts, 1), {}

    @property
    def gives_weights(self) -> bool:
        """Return whether a written-out recurrence serves this model: it computes the weights anyway."""
        return RECURRENCE.choose(self.describe(self.readout.weight)).name != "step by step"

    def describe(self, words: Tensor) -> planning.Request:
        """Describe the decoder's recurrence as a request to its table."""
        request = describe_recurrence(words, self.attention, self.cell)
        plain = () if self.config.cell in ("gru", "lstm") else ("cells without gates (model.cell)",)
        return request._replace(features=(*request.features, *plain))

    @without_autocast("cpu", "cuda")
    def recur_cpu(
        self, words: Float[Tensor, "b n e"], keys: Prepared, start: Float[Tensor, "b p d"]
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n dv"], dict[str, Tensor]]:
        """Run the recurrence in float32 or float64, with its own backward pass."""
        assert keys.length is not None
        there = torch.arange(keys.keys.shape[1], device=words.device) < keys.length[:, None]
        states, contexts, weights = cpu.recur(
            self.cell.project(words), start, keys.keys, keys.values, there, *self.matrices()
        )
        return states, contexts, {"weights": weights}

    def recur_triton(
        self, words: Float[Tensor, "b n e"], keys: Prepared, start: Float[Tensor, "b p d"]
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n dv"], dict[str, Tensor]]:
        """Run the recurrence in Triton kernels, with products in the words' dtype or in autocast's."""
        from regard.kernels import rnnsearch_triton as triton

        assert keys.length is not None
        net, matrices = self.cell.net, self.matrices()
        bias = net.bias_ih_l0 + net.bias_hh_l0 if self.config.cell == "lstm" else net.bias_ih_l0
        projected = linear(words.transpose(0, 1), net.weight_ih_l0[:, : self.config.embedding], bias)
        states, contexts, weights = triton.recur(
            projected, start.float(), keys.keys, keys.values, keys.length, *matrices
        )
        return states, contexts, {"weights": weights}

    def matrices(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the score's W and v, the cell's matrices for contexts and for states, and the bias for states."""
        score, net = self.attention.score, self.cell.net
        assert isinstance(score, Additive)
        read = net.weight_ih_l0[:, self.config.embedding :]
        return score.query.weight, score.v, read, net.weight_hh_l0, net.bias_hh_l0

    def step_cell(
        self, word: Float[Tensor, "r g"], state: Float[Tensor, "r p d"], context: Float[Tensor, "r dv"]
    ) -> Float[Tensor, "r p d"]:
        """Compute the next state from a word's projection, the last state and the context."""
        return self.cell.step(word + self.cell.project(context, self.config.embedding, bias=False), state)

    def deep_output(
        self, states: Float[Tensor, "*b d"], words: Float[Tensor, "*b e"], contexts: Float[Tensor, "*b dv"]
    ) -> Float[Tensor, "*b k"]:
        """Compute the deep output, before the readout."""
        return self.dropout(maxout(self.deep(torch.cat([states, words, contexts], -1))))

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return the state before the first step; annotations are projected once."""
        return start_attending(self.attention, memory, memory.sentence["start"], rows, coverage)

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Read one word of every row."""
        words, before = self.dropout(self.target(tokens)), state.row["state"].clone()
        context = attend_rows(self.attention, before[:, 0], state)
        after = self.step_cell(self.cell.project(words), before, context)
        state.row["state"].copy_(after)
        read = before if self.config.output == "previous" else after
        return self.output(self.deep_output(read[:, 0], words, context)), state

    @cached_property
    def notation(self) -> Notation:
        """Return the paper's formulas, with s_i or s_{i−1} in the deep output as `output` says."""
        config = self.config
        state = "s_{i−1}" if config.output == "previous" else "s_i"
        own = {"decoder: cat": "[s_{i−1}; E y_{i−1}; c_i]"} if config.output == "previous" else {}
        if not config.has_recurrent_encoder:
            own["begin"] = "W_s Σ_j h_j / m"
        elif not config.bidirectional:
            own["begin"] = "W_s h_m"
        return Notation(
            name_additive_stages("s_{i−1}", "h_j", "α_ij", "c_i", "the decoder's state before this word"),
            readout=(
                Reading("cell", "state", "s_i = f(s_{i−1}, [E y_{i−1}; c_i])", "the decoder's state after this step"),
                Reading(
                    "deep", "input", f"[{state}; E y_{{i−1}}; c_i]", "state, word and context side by side", main=False
                ),
                Reading(
                    "readout",
                    "input",
                    f"t̃_i = maxout(U_o {state} + V_o E y_{{i−1}} + C_o c_i)",
                    "what the readout reads",
                ),
            ),
            boxes=(own, BOXES),
        )


BOXES = {
    "encoder:input": "x_1 … x_m",
    "decoder:input": "y_0 … y_{n−1}",
    "source Embedding": "E x_j",
    "target Embedding": "E y_{i−1}",
    r"forwards\.\d+ Layer": "→h^{(ℓ)}_j",
    r"backwards\.\d+ Layer": "←h^{(ℓ)}_j",
    "encoder cat": "h^{(ℓ)}_j = [→h^{(ℓ)}_j; ←h^{(ℓ)}_j]",
    r"encoder\.layers\.\d+ Layer": "h^{(ℓ)}_j",
    "final_norm": "h_j",
    "begin": "W_s ←h_1",
    "encoder: tanh": "s_0",
    r"decoder:attention\.score\.query": "W_a s_{i−1}",
    r"decoder:attention\.score\.key": "U_a h_j",
    "decoder:attention score$": "e_{ij} = v_a^⊤ tanh(W_a s_{i−1} + U_a h_j)",
    "decoder:attention weights$": "α_{ij}",
    "decoder:attention sum$": "c_i = Σ_j α_{ij} h_j",
    "cell ": "s_i = f(s_{i−1}, y_{i−1}, c_i)",
    "decoder: cat$": "[s_i; E y_{i−1}; c_i]",
    "deep ": "t̃_i",
    "maxout": "t_i",
    "readout": "W_o t_i",
    " softmax$": "p(y_i | y_{<i}, x)",
}
