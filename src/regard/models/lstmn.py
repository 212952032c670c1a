r"""The LSTMN: an LSTM that attends to all its earlier states at every step; a single stack or an encoder-decoder.

Cheng, Dong and Lapata 2016 (arXiv:1601.06733), sections 3 and 4. Two tapes keep all states, hidden h_1 … h_{t-1} and
memory c_1 … c_{t-1}, where an LSTM keeps only the last pair.

- Intra-attention (3.1): $a_i^t = v^\top \tanh(W_h h_i + W_x x_t + W_{\tilde h} \tilde h_{t-1})$ over i < t; the same
  weights read both tapes, $\tilde h_t = \sum_i s_i h_i$ and $\tilde c_t = \sum_i s_i c_i$. Both are zero at t = 1.
- $i, f, o = \sigma(W [\tilde h_t; x_t])$, $\hat c = \tanh(W_c [\tilde h_t; x_t])$,
  $c_t = f \circ \tilde c_t + i \circ \hat c_t$, $h_t = o \circ \tanh(c_t)$.
- Layers (3.2): the input of each is h of the one below.
- Shallow fusion (4): the decoder is an LSTMN "in lieu of a standard LSTM" and attends to the source as Bahdanau's or
  Luong's does: its h_t is the query, $b_j^t = u^\top \tanh(W_\gamma \gamma_j + W h_t)$ over the source's hidden tape γ.
- Deep fusion (4): $b_j^t = u^\top \tanh(W_\gamma \gamma_j + W_x x_t + W_{\tilde\gamma} \tilde\gamma_{t-1})$; the same
  weights read both tapes of the source, $\tilde\gamma_t$ and $\tilde\alpha_t$. A gate
  $r_t = \sigma(W_r [\tilde\gamma_t; x_t])$ adds $r_t \circ \tilde\alpha_t$ to $c_t$.
- The paper does not define the readout's input: here it is $\tanh(W [\tilde\gamma_t; h_t])$, as in Luong's models.
- With several layers, the decoder's top layer attends to the encoder's top layer; x_t is h_t of the layer below.

A language model is the decoder without a source. A classifier applies two layers, the first with ReLU, to the mean of
the hidden tape (5.2). Departures: scores and gates have biases. `intra = false` is an LSTM that reads h_{t-1} and
c_{t-1}, with the same parameters except the attention's.

Dropout applies to embeddings, between layers and before the readout, never from step to step. Embeddings start normal
with deviation 1, and the readout with 3/√d, since h is small; `recurrent` describes how cells start.

The reads of deep fusion depend on the words and on earlier reads, never on the decoder's tapes, so that teacher forcing
runs two separate recurrences. `kernels/operations/lstmn.py` implements both with their own backward passes. If a module
has a hook or a backend is forced, the plain loops of this file run instead. In shallow fusion all h_t are computed
before the attention.
"""

# b sentences · m source positions · n target positions · e width of an input · d of a state, dd twice · g four times
# r rows · v vocabulary or labels
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Additive, Attention, Cache, Lengths, Prepared, State
from regard.errors import ArgumentError
from regard.kernels import linear, planning
from regard.kernels import lstmn_cpu as recurrence
from regard.models.config import LSTMNConfig
from regard.models.contract import Memory, Notation, Reading, Tokens, name_additive_stages
from regard.models.encoders import pool_mean
from regard.models.recurrent import (
    Dropout,
    Layer,
    RecurrentModel,
    attend_rows,
    can_bypass,
    describe_recurrence,
    make_linear,
    make_readout,
    without_autocast,
)

RECURRENCE = planning.Table(
    "LSTMN",
    planning.Row(name="written out", dtypes=planning.FULL, features=frozenset({planning.AUTOCAST})),
    planning.Row(name="step by step", features=None),
)


def is_written_out(x: Tensor, *parts: nn.Module) -> bool:
    """Return whether the written-out recurrence can replace these modules."""
    return RECURRENCE.choose(describe_recurrence(x, *parts)).name == "written out"


def can_step_in_place(x: Tensor) -> bool:
    """Return whether a step may write in place, which is faster: without gradients, on a CPU."""
    plain = x.dtype in planning.FULL and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    return plain and not torch.is_grad_enabled() and not torch.compiler.is_compiling()


class Tapes(nn.Module):
    """A layer: an LSTM with a hidden and a memory tape, kept as one tensor, [h_t; c_t]."""

    step_method = "step_cell"  # the method that takes one step, which a recording wraps

    def __init__(self, inputs: int, size: int, hidden: int, intra: bool = True):
        super().__init__()
        self.inputs, self.size = inputs, size
        self.cell = Layer("lstm", inputs, size)
        self.intra = Attention(Additive(inputs + size, size, hidden)) if intra else None

    @without_autocast("cpu", "cuda")
    def forward(
        self, x: Float[Tensor, "b n e"], added: Float[Tensor, "b n d"] | None = None
    ) -> Float[Tensor, "b n dd"]:
        """Return the tapes of a whole sentence; `added` is added to c_t. Padding after a row does not change it."""
        if not is_written_out(x, self.cell, *([self.intra] if self.intra else [])):
            return self.loop(x, added)
        x, net = x.transpose(0, 1), self.cell.net
        projected = linear(x, net.weight_ih_l0, net.bias_ih_l0 + net.bias_hh_l0)
        added = None if added is None else added.transpose(0, 1)
        if self.intra is None:
            return recurrence.run_tapes(projected, net.weight_hh_l0, added).transpose(0, 1)
        score = cast(Additive, self.intra.score)
        words, summary = score.query.weight.split([self.inputs, self.size], 1)
        asking = recurrence.ScoreWeights(summary, score.key.weight, score.key.bias, score.v)
        return recurrence.run_tapes(projected, net.weight_hh_l0, added, linear(x, words), asking).transpose(0, 1)

    def loop(self, x: Float[Tensor, "b n e"], added: Float[Tensor, "b n d"] | None) -> Float[Tensor, "b n dd"]:
        """Compute the tapes in a plain loop that calls the attention at every step, for hooks and forced backends."""
        read = x.new_zeros(len(x), 2 * self.size)
        past, keys = [read], []
        for t, projected in enumerate(self.cell.project(x).unbind(1)):
            if self.intra is None:
                read = past[-1]
            else:
                keys.append(self.intra.score.project_keys(past[-1][:, : self.size]))
                # The initial zeros are no entry: at t = 0 they are masked, later they are left out.
                first = min(t, 1)
                length = None if t else torch.zeros(len(x), dtype=torch.long, device=x.device)
                tape = Prepared(torch.stack(keys[first:], 1), torch.stack(past[first:], 1), self.intra, length)
                read = self.read_past(x[:, t], read[:, : self.size], tape)
            past.append(self.step_cell(projected, read, None if added is None else added[:, t]))
        return torch.stack(past[1:], 1)

    def read_past(
        self, x: Float[Tensor, "r e"], summary: Float[Tensor, "r d"], past: Prepared
    ) -> Float[Tensor, "r dd"]:
        """Read [h̃; c̃] from the tapes; the query is the word and the last h̃."""
        assert self.intra is not None
        query = torch.cat([x, summary], -1)
        length_range = past.length_range() if isinstance(past, Cache) else None
        known_score = can_bypass(self.intra, scores=(Additive,))
        if length_range is not None and past.length is not None and can_step_in_place(x) and known_score:
            score = cast(Additive, self.intra.score)
            return recurrence.read_tapes(
                score.project_query(query), past.keys, past.values, past.length, score.v, length_range
            )
        read: Tensor = self.intra(query[:, None], past)
        return read[:, 0]

    def step_cell(
        self, projected: Float[Tensor, "r g"], read: Float[Tensor, "r dd"], added: Float[Tensor, "r d"] | None
    ) -> Float[Tensor, "r dd"]:
        """Compute the next entry [h; c] of both tapes from `read`, [h̃; c̃]."""
        net, (h, c) = self.cell.net, read.chunk(2, -1)
        sums = projected + linear(h, net.weight_hh_l0, net.bias_hh_l0)
        if can_step_in_place(sums) and sums.dtype == read.dtype:
            return recurrence.step_lstm(sums, read, added, torch.empty_like(read), torch.empty_like(h))
        i, f, proposed, o = sums.chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(proposed)
        if added is not None:
            c = c + added
        return torch.cat([torch.sigmoid(o) * torch.tanh(c), c], -1)

    def begin(self, rows: int, size: int) -> dict[str, Any]:
        """Return the state before the first step: empty tapes and the last h̃, or a plain LSTM's state."""
        if self.intra is None:
            return {"state": self.cell.net.weight_hh_l0.new_zeros(rows, 2 * self.size)}
        past = self.intra.cache(rows, size, keys=self.size, values=2 * self.size)
        past.private_rows = True  # copying a row's past costs less than additive scores against all rows of a beam
        return {"past": past, "summary": past.values.new_zeros(rows, self.size)}

    def step(
        self, x: Float[Tensor, "r e"], before: dict[str, Any], added: Float[Tensor, "r d"] | None = None
    ) -> Float[Tensor, "r d"]:
        """Take one step, update the state from `begin` in place, and return h."""
        projected = self.cell.project(x)
        if self.intra is None:
            now = self.step_cell(projected, before["state"], added)
            before["state"].copy_(now)
        else:
            read = self.read_past(x, before["summary"], before["past"])
            before["summary"].copy_(read[:, : self.size])
            now = self.step_cell(projected, read, added)
            before["past"].extend(self.intra.prepare(now[:, None, : self.size], now[:, None]))
        return now[:, : self.size]


class Stack(nn.Module):
    """A stack of layers of tapes, with dropout between them."""

    def __init__(self, config: LSTMNConfig):
        super().__init__()
        widths = [config.embedding] + [config.size] * (config.layers - 1)
        self.layers = nn.ModuleList(Tapes(width, config.size, config.hidden, config.intra) for width in widths)
        self.dropout, self.size, self.inputs = Dropout(config.dropout), config.size, widths[-1]

    @property
    def each(self) -> list[Tapes]:
        """Return the layers, from the bottom up."""
        return cast(list[Tapes], list(self.layers))

    def forward(self, x: Float[Tensor, "b n e"]) -> Float[Tensor, "b n dd"]:
        """Return the top layer's tapes."""
        tapes: Tensor = self.layers[-1](self.below(x))
        return tapes

    def below(self, x: Float[Tensor, "b n e"]) -> Float[Tensor, "b n f"]:
        """Return the top layer's input."""
        for layer in self.each[:-1]:
            x = self.dropout(layer(x)[..., : self.size])
        return x


class LSTMNModel(RecurrentModel):
    """An encoder-decoder, a language model or a classifier, depending on its config's job."""

    def __init__(self, config: LSTMNConfig, source: int, target: int):
        super().__init__()
        self.config = config
        size, words = config.size, config.embedding
        self.dropout = Dropout(config.dropout)
        if config.reads_source:
            self.source, self.encoder = nn.Embedding(source, words), Stack(config)
        if config.writes:
            self.target, self.decoder = nn.Embedding(target, words), Stack(config)
        if not config.writes:
            self.hidden = make_linear(size, size)
        if config.reads_source and config.writes:
            x = self.decoder.inputs
            self.attention = Attention(Additive(x + size if config.fusion == "deep" else size, size, config.hidden))
            if config.fusion == "deep":
                self.gate = make_linear(size + x, size)
            self.attentional = make_linear(2 * size, size, bias=False)
        self.readout = make_readout(size, target, 3.0)

    # ---- reading

    def encode(self, source: Tokens) -> Memory:
        """Encode the source into tapes; for a language model, return an empty memory that counts sentences."""
        if not self.config.reads_source:
            empty = self.readout.weight.new_zeros(len(source.lengths), 0, self.config.size)
            return Memory(empty, Lengths(source.lengths.new_zeros(len(source.lengths))))
        states = self.encoder(self.dropout(self.source(source.padded_ids)))
        return Memory(source.unpad(states), source.span)

    def classify(self, memory: Memory) -> Float[Tensor, "b v"]:
        """Compute the scores of all labels from the mean of the hidden tape."""
        if self.config.writes:
            raise ArgumentError(f'job: "{self.config.job}", expected "classify" for a classifier')
        memory = memory.pad()
        hidden = memory.states[..., : self.config.size]
        mean = pool_mean(hidden, memory.lengths)
        return self.output(self.dropout(torch.relu(self.hidden(mean))))

    # ---- writing

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n d"], dict[str, Tensor]]:
        """Take all steps; the top layer's tapes are computed before the source is read, or, in deep fusion, after."""
        self.check_writes()
        x, top = self.decoder.below(self.dropout(self.target(target.padded_ids))), self.decoder.each[-1]
        if not self.config.reads_source:
            hidden = top(x)[..., : self.config.size]
        elif self.config.fusion == "deep":
            read = self.read(x, self.prepare_source(memory))
            hidden = self.attend(read, top(x, self.fuse(read, x)))
        else:
            states = top(x)[..., : self.config.size]
            hidden = self.attend(self.attention(states, self.prepare_source(memory)), states)
        return target.unpad(self.dropout(hidden)), {}

    def prepare_source(self, memory: Memory) -> Prepared:
        """Prepare the source's hidden tape as keys, and as values both tapes (deep fusion) or the hidden one."""
        padded = memory.pad()
        hidden = padded.states[..., : self.config.size]
        keys = self.attention.prepare(hidden, padded.states if self.config.fusion == "deep" else hidden)
        return Prepared(keys.keys, keys.values, self.attention, padded.lengths.to(keys.keys.device))

    @without_autocast("cpu", "cuda")
    def read(self, x: Float[Tensor, "b n f"], keys: Prepared) -> Float[Tensor, "b n dd"]:
        """Read the source at all steps, in order, for deep fusion."""
        size = self.config.size
        if is_written_out(x, self.attention):
            score = cast(Additive, self.attention.score)
            words, summary = score.query.weight.split([x.shape[-1], size], 1)
            assert keys.length is not None
            there = torch.arange(keys.keys.shape[1], device=x.device) < keys.length[:, None]
            projected_query = linear(x.transpose(0, 1), words)
            return recurrence.read_source(projected_query, keys.keys, keys.values, there, summary, score.v).transpose(
                0, 1
            )
        last, contexts = x.new_zeros(len(x), size), []
        for each in x.unbind(1):
            contexts.append(self.attention(torch.cat([each, last], -1)[:, None], keys)[:, 0])
            last = contexts[-1][:, :size]
        return torch.stack(contexts, 1)

    def fuse(self, read: Float[Tensor, "*b dd"], x: Float[Tensor, "*b e"]) -> Float[Tensor, "*b d"]:
        """Compute r ∘ α̃, which deep fusion adds to the memory tape."""
        summary, cell = read.chunk(2, -1)
        return torch.sigmoid(self.gate(torch.cat([summary, x], -1))) * cell

    def attend(self, read: Float[Tensor, "*b dv"], states: Float[Tensor, "*b dw"]) -> Float[Tensor, "*b d"]:
        """Compute tanh(W [γ̃; h]), without the memory tapes in `read` and `states`."""
        size = self.config.size
        return torch.tanh(self.attentional(torch.cat([read[..., :size], states[..., :size]], -1)))

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return the state before the first step: empty tapes, and the source's tapes, projected once."""
        self.check_writes()
        sentence: dict[str, Any] = {}
        row: dict[str, Any] = {}
        count = len(memory.lengths) * rows
        for index, layer in enumerate(self.decoder.each):
            row |= {f"{name}.{index}": part for name, part in layer.begin(count, size).items()}
        if self.config.reads_source:
            keys = sentence["memory"] = self.prepare_source(memory).copy()
            if self.config.fusion == "deep":
                row["read"] = keys.values.new_zeros(count, self.config.size)
            if coverage:
                row["coverage"] = keys.keys.new_zeros(count, keys.keys.shape[1])
        elif coverage:
            raise ArgumentError("coverage: true given, expected false: a language model has no source to cover")
        return State(sentence, row, rows)

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Read one word of every row."""
        x = self.dropout(self.target(tokens))
        *below, top = self.decoder.each
        for index, layer in enumerate(below):
            x = self.dropout(layer.step(x, layer_state(state, index)))
        mine = layer_state(state, len(below))
        if not self.config.reads_source:
            hidden = top.step(x, mine)
        elif self.config.fusion == "deep":
            read = attend_rows(self.attention, torch.cat([x, state.row["read"]], -1), state)
            state.row["read"].copy_(read[:, : self.config.size])
            hidden = self.attend(read, top.step(x, mine, self.fuse(read, x)))
        else:
            states = top.step(x, mine)
            hidden = self.attend(attend_rows(self.attention, states, state), states)
        return self.output(self.dropout(hidden)), state

    def source_states(self, memory: Memory) -> Float[Tensor, "*b m d"]:
        """Return the source's hidden tape, without the memory tape."""
        return memory.states[..., : self.config.size]

    def hidden_state(self, state: State) -> Float[Tensor, "r d"]:
        """Return the last entry of the top layer's hidden tape."""
        top = layer_state(state, len(self.decoder.layers) - 1)
        if "state" in top:
            return cast(Tensor, top["state"])[:, : self.config.size]
        past = top["past"]
        rows = torch.arange(len(past.values), device=past.values.device)
        return past.values[rows, past.length - 1, : self.config.size]

    def check_writes(self) -> None:
        """Raise an error for a classifier, which cannot write."""
        if not self.config.writes:
            raise ArgumentError('job: "classify", expected "translate" or "language-model" for one that writes')

    @cached_property
    def notation(self) -> Notation:
        """Return the paper's formulas for this job and fusion."""
        config = self.config
        own = name_additive_stages("[x_t; h̃_{t−1}]", "h_i", "s_i", "[h̃_t; c̃_t]", "the word, and what was read last")
        tapes = {
            "v": ("[h_i; c_i]", "the entries of both tapes"),
            "Σ a v": ("[h̃_t; c̃_t] = Σ s_i [h_i; c_i]", "what is read off both tapes"),
        }
        if config.fusion == "deep":
            source = name_additive_stages(
                "[x_t; γ̃_{t−1}]", "γ_j", "p_j", "γ̃_t", "the input, and what was read of the source last"
            )
            source["v"] = ("[γ_j; α_j]", "both tapes of the source")
            source["Σ a v"] = ("[γ̃_t; α̃_t] = Σ p_j [γ_j; α_j]", "what is read off both tapes of the source")
        else:
            source = name_additive_stages("h_t", "γ_j", "p_j", "γ̃_t", "the decoder's state after this word")
        last = {"translate": "tanh(W [γ̃_t; h_t])", "language-model": "h_t", "classify": "ReLU(W h̄ + b)"}[config.job]
        readout = (
            Reading("gate", "output", "W_r [γ̃_t; x_t] + b", "the gate r_t before its sigmoid", main=False),
            Reading("attentional", "input", "[γ̃_t; h_t]", "what was read of the source, and the state", main=False),
            Reading("hidden", "input", "h̄ = Σ h_t / n", "the mean of the hidden tape", main=False),
            Reading("readout", "input", last, "what the readout reads"),
        )
        boxes: dict[str, str] = {}
        if not config.intra:
            boxes["cell Layer"] = "W [h^{(ℓ)}_{t−1}; h^{(ℓ−1)}_t]"
        if config.reads_source and config.writes:
            boxes[r"encoder\.layers\.\d+ step_lstm$"] = "[h^{(ℓ)}_t; c^{(ℓ)}_t]‖[γ_t; α_t] = [h_t; c_t]"
            boxes["decoder: softmax$"] = "p(y_t | y_{<t}, x)"
        if config.fusion == "deep":
            boxes |= {
                r"attention\.score\.query": "W_x h^{(ℓ−1)}_t + W_γ̃ γ̃_{t−1}",
                "decoder: cat$": "[h^{(ℓ−1)}_t; γ̃_{t−1}]",
                "decoder: cat 2": "[γ̃_t; h^{(ℓ−1)}_t]",
                "attention sum$": "[γ̃_t; α̃_t] = Σ_j p^t_j [γ_j; α_j]",
            }
        return Notation({}, {"intra": own | tapes, "attention": source}, readout, (boxes, BOXES))


def layer_state(state: State, layer: int) -> dict[str, Any]:
    """Return one layer's part of a search's state, under the layer's own names."""
    return {
        name: state.row[f"{name}.{layer}"] for name in ("past", "summary", "state") if f"{name}.{layer}" in state.row
    }


BOXES = {
    "encoder:input": "x_1 … x_m",
    "decoder:input": "y_0 … y_{n−1}",
    "(source|target) Embedding": "x_t",
    r"layers\.\d+ cat": "[h^{(ℓ−1)}_t; h̃^{(ℓ)}_{t−1}]",
    r"intra\.score\.query": "W_x h^{(ℓ−1)}_t + W_h̃ h̃^{(ℓ)}_{t−1}",
    r"intra\.score\.key": "W_h h^{(ℓ)}_i",
    "intra score$": "a^{t(ℓ)}_i = v^⊤ tanh(…)",
    "intra weights$": "s^{t(ℓ)}_i",
    "intra sum$": "[h̃^{(ℓ)}_t; c̃^{(ℓ)}_t] = Σ_i s^{t(ℓ)}_i [h^{(ℓ)}_i; c^{(ℓ)}_i]",
    "cell Layer": "W [h̃^{(ℓ)}_t; h^{(ℓ−1)}_t]",
    "step_lstm, all steps before": "H^{(ℓ)}_{t−1}, C^{(ℓ)}_{t−1}",
    "step_lstm": "[h^{(ℓ)}_t; c^{(ℓ)}_t]",
    r"attention\.score\.query": "W h_t",
    r"attention\.score\.key": "W_γ γ_j",
    "attention score$": "b^t_j = u^⊤ tanh(…)",
    "attention weights$": "p^t_j",
    "attention sum$": "γ̃_t = Σ_j p^t_j γ_j",
    "decoder: cat": "[γ̃_t; h_t]",
    "gate Linear": "W_r [γ̃_t; h^{(ℓ−1)}_t]",
    "decoder: sigmoid": "r_t",
    "decoder: mul": "r_t ∘ α̃_t",
    "encoder: pool_mean$": "Σ_t h_t / m",
    "decoder: softmax$": "p(y_t | y_{<t})",
    "encoder: softmax$": "p(label | x)",
}
