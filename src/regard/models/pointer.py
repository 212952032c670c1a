r"""Pointer networks: each output is a position of the source, and attention weights are the output distribution.

Vinyals, Fortunato and Jaitly 2015 (arXiv:1506.03134), section 2.3.

- One LSTM encodes the source as annotations $e_1 \dots e_m$; another starts from its last state and decodes.
- $u^i_j = v^\top \tanh(W_1 e_j + W_2 d_i)$, $p(C_i = j) = \mathrm{softmax}_j(u^i)$: additive attention from the current
  state. Only its weights are needed, so that its values are an identity matrix.
- The next input is the embedding of the token that the model pointed at, as the paper feeds the input $P_{C_i}$.
- A learned annotation after the last word is the position that ends the output.

Search and training use tokens, not positions. The probability of a token is the sum over its positions,
$p(y) = \sum_{j: x_j = y} a_{ij}$; a token that is not in the source gets the smallest positive number as its
probability. So the model has no readout, and source and target share a vocabulary. `decode` returns the logarithms of
these sums, and `output` returns them unchanged.

Three departures. With `once`, the model never points at the same position twice. The paper restricts only its search
for tours to valid ones (section 4.4); here the restriction also holds in training, where each word uses up its first
unused position. With `bidirectional`, the encoder reads in both directions, each with half of the width. And the score
(`Additive`) has a bias inside the tanh.

Dropout applies to embeddings; `recurrent` describes how cells start.
"""

# b sentences · m source positions, k = m + 1 places · n target positions · d width · p parts of a state · r rows
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Additive, Attention, Mask, Prepared, State
from regard.data import END
from regard.errors import ArgumentError
from regard.models.config import PointerConfig
from regard.models.contract import Memory, Notation, Tokens, name_additive_stages
from regard.models.recurrent import Bidirectional, Dropout, RecurrentModel, Stack, repeat_rows, without_autocast


class PointerModel(RecurrentModel):
    """An LSTM encoder and decoder whose attention weights are the output."""

    projects = False
    points = True

    def __init__(self, config: PointerConfig, source: int, target: int):
        super().__init__()
        if source != target:
            raise ArgumentError(
                f"vocabularies: {source} and {target} pieces given, expected one for both sides "
                "(tokenizer.joint = true): a pointer network writes words of its source"
            )
        self.config = config
        self.vocabulary = target
        size, words = config.size, config.embedding
        self.words = nn.Embedding(source, words)
        self.encoder = (
            Bidirectional("lstm", words, size // 2, 1) if config.bidirectional else Stack("lstm", words, size, 1)
        )
        self.decoder = Stack("lstm", words, size, 1)
        self.end = nn.Parameter(torch.randn(size) / size**0.5)
        self.attention = Attention(Additive(size, size, config.hidden))
        self.dropout = Dropout(config.dropout)

    def encode(self, source: Tokens) -> Memory:
        """Encode the source into annotations, with the decoder's first state and the source's token ids."""
        ids, lengths = source.padded_ids, source.lengths
        x = self.dropout(self.words(ids))
        states, last = self.encoder.read(x, lengths)
        return Memory(source.unpad(states), source.span, {"start": last, "ids": ids})

    def prepare_places(self, memory: Memory) -> tuple[Prepared, Int[Tensor, "b k"]]:
        """Project the positions that the model can point at, and return them with their tokens, END last."""
        padded = memory.pad()
        lengths = padded.lengths.to(padded.states.device)
        behind = torch.arange(padded.states.shape[1] + 1, device=lengths.device) >= lengths[:, None]
        keys = torch.where(behind[..., None], self.end, F.pad(padded.states, (0, 0, 0, 1)))
        ids = F.pad(memory.sentence["ids"], (0, 1)).masked_fill(behind, END)
        ready = self.attention.prepare(keys)
        return Prepared(ready.keys, ready.values, self.attention, lengths + 1), ids

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n v"], dict[str, Tensor]]:
        """Take all steps at once, since teacher forcing makes all inputs known."""
        words = target.padded_ids
        states, _ = self.decoder(self.dropout(self.words(words)), memory.sentence["start"])
        keys, ids = self.prepare_places(memory)
        free = ~mark_used(words, ids) if self.config.once else None
        return target.unpad(self.token_log_probs(self.point(states, keys, free), ids)), {}

    @without_autocast("cpu", "cuda")
    def point(
        self, states: Float[Tensor, "b n d"], keys: Prepared, free: Bool[Tensor, "b n k"] | None
    ) -> Float[Tensor, "b n k"]:
        """Compute the weight of every position, in float32 or wider, since the loss uses it."""
        itself = torch.eye(keys.keys.shape[-2], dtype=keys.keys.dtype, device=keys.keys.device)
        span = None if free is None else Mask(free)
        weights: Tensor = self.attention(states, keys, itself.expand(len(keys.keys), -1, -1), span)
        return weights

    def token_log_probs(self, weights: Float[Tensor, "b n k"], ids: Int[Tensor, "b k"]) -> Float[Tensor, "b n v"]:
        """Compute the log-probability of every token from the sum of the weights of its positions."""
        wide = weights if weights.dtype == torch.float64 else weights.float()
        none = wide.new_zeros(*wide.shape[:-1], self.vocabulary)
        summed = none.scatter_add(-1, ids[:, None].expand(wide.shape), wide)
        return summed.clamp(min=torch.finfo(wide.dtype).tiny).log()

    def output(self, hidden: Float[Tensor, "*b v"]) -> Float[Tensor, "*b v"]:
        """Return the log-probabilities that `decode` computed, unchanged."""
        return hidden

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return the state before the first step; annotations are projected once."""
        keys, ids = self.prepare_places(memory)
        row = {"state": repeat_rows(memory.sentence["start"], rows)}
        if self.config.once:
            row["used"] = ids.new_zeros(len(ids) * rows, ids.shape[1], dtype=torch.bool)
        if coverage:
            row["coverage"] = keys.keys.new_zeros(len(ids) * rows, ids.shape[1] - 1)
        return State({"memory": keys.copy(), "ids": ids}, row, rows)

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Read one word of every row; one attention call serves all rows of a sentence."""
        top, moved = self.decoder.step(
            self.decoder.each[0].project(self.dropout(self.words(tokens))), state.row["state"]
        )
        state.row["state"].copy_(moved)
        keys, ids = state.sentence["memory"], state.sentence["ids"]
        free = None
        if self.config.once:
            row = state.row["used"]
            again = (tokens.view(-1, state.rows, 1) == ids[:, None]).flatten(0, 1) & ~row
            row.logical_or_(again & (again.cumsum(-1) == 1))
            free = ~row.view(-1, state.rows, ids.shape[1]) | (ids == END)[:, None]
        weights = self.point(state.group_rows(top[:, None]), keys, free)
        if state.coverage is not None:
            # END is no source position.
            words = torch.arange(ids.shape[1], device=ids.device) < keys.length[:, None, None] - 1
            state.coverage.add_((weights * words)[..., :-1].flatten(0, 1).to(state.coverage.dtype))
        return self.token_log_probs(weights, ids).flatten(0, 1), state

    @cached_property
    def notation(self) -> Notation:
        """Return the formulas and symbols of the paper."""
        return Notation(
            {
                **name_additive_stages("d_i", "e_j", "p(C_i = j)", "p", "the decoder's state"),
                "W q": ("W₂ d_i", "the decoder's state, projected"),
                "U k + b": ("W₁ e_j + b", "every place, projected, once for all words"),
                "tanh(W q + U k + b)": ("tanh(W₁ e_j + W₂ d_i + b)", "state and place together"),
                "e": ("u_j = vᵀ tanh(W₁ e_j + W₂ d_i + b)", "the score of every place"),
                "a": ("p(C_i = j) = softmax(u)", "the probability of every place: this is the output"),
                "v": ("1_j", "each place is its own value"),
                "Σ a v": ("p(C_i)", "the weights again: what is summed are the places themselves"),
            },
            boxes=(
                {
                    "encoder:input": "P_1 … P_m",
                    "decoder:input": "C_0 … C_{n−1}",
                    r"forwards\.\d+ Layer": "→e_j",
                    r"backwards\.\d+ Layer": "←e_j",
                    "encoder cat$": "e_j = [→e_j; ←e_j]",
                    r"encoder\.layers\.\d+ Layer": "e_j",
                    r"decoder\.layers\.\d+ Layer": "d_i",
                    r"score\.query": "W_2 d_i",
                    r"score\.key": "W_1 e_j",
                    " score$": "u^i_j = v^⊤ tanh(W_1 e_j + W_2 d_i)",
                    " weights$": "p(C_i = j)",
                    " sum$": "Σ_j p(C_i = j) 1_j",
                    "scatter_add": "p(y) = Σ_{j: x=y} p(C_i = j)",
                    "decoder: log$": "log p(y)",
                },
            ),
        )


def mark_used(words: Int[Tensor, "b n"], ids: Int[Tensor, "b k"]) -> Bool[Tensor, "b n k"]:
    """Mark the positions used up after each word; each word uses up its first unused position. END is never used up."""
    same = ids[:, :, None] == ids[:, None]
    before = same.tril(-1).sum(-1)  # the number of earlier positions of the same token
    counts = (words[..., None] == ids[:, None]).cumsum(1)
    return (before[:, None] < counts) & (ids != END)[:, None]
