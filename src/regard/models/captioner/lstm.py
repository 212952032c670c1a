r"""The LSTM that writes captions: at every word it looks at the whole picture, at one place, or not at all.

Xu et al. 2015 (arXiv:1502.03044), sections 3.1.2 and 4. Places $a_i$ of the grid are the annotations, $y_{t-1}$ is the
word just read.

- $c_0, h_0$ from the mean annotation, each by a tanh of its own.
- $e_{ti} = v^\top \tanh(W h_{t-1} + U a_i + b)$: the query is the state *before* the word; $\alpha_t$ its softmax.
- Soft: $\hat z_t = \beta_t \sum_i \alpha_{ti} a_i$, the gate $\beta_t = \sigma(f_\beta(h_{t-1}))$ one number per word.
- Hard: in training a place is drawn from $\alpha_t$ (for a share `sampled` of the sentences, the others take the sum),
  in evaluation it is the likeliest, so that a search gives the same twice. The gate is kept. A departure: with a grid
  that is yet to be learned, draws are of nothing at first, and teach not to look; so none is made in the first
  `settle` batches, and the share grows in as many more.
- Straight through: in training a place is drawn from $\alpha_t$ by Gumbel's noise g, and the gradient is that of
  $\mathrm{softmax}((e_t + g)/\tau)$, of all places (Jang et al. 2017, arXiv:1611.01144); in evaluation it is the
  likeliest, as of hard attention.
- None: $\hat z_t = \beta_t \bar a$, the mean of the grid at every word. The same model but for the attention's own
  parameters.
- $h_t$ from the cell over $[E y_{t-1}; \hat z_t]$; deep output $L_o(E y_{t-1} + L_h h_t + L_z \hat z_t)$ (equation 7),
  $L_o$ being the model's readout. $L_h$ and $L_o$ have a bias, as have the layers of $c_0$, $h_0$ and the score.

With several layers the query is the top one's state, and the picture goes into the first. Dropout falls on words,
between layers and before the readout, never on what goes from step to step.
"""

# b captions · n words · m places · c channels · e width of a word · d of a state · g gates · l layers · r rows
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Additive, Attention, Prepared, State, weighting
from regard.models.config import CaptionerConfig
from regard.models.contract import Memory, Tokens
from regard.models.layers.cells import Dropout, Stack
from regard.models.layers.recurrent import attend_rows, can_bypass, is_standard, make_linear, repeat_rows

WEIGHTINGS = {"soft": weighting.Softmax, "hard": weighting.Hard, "straight-through": weighting.Gumbel}


class Glimpse(NamedTuple):
    """The glimpse that one word takes of the picture: a context, and how it was chosen, which an objective may need."""

    context: Float[Tensor, "b c"]
    weights: Float[Tensor, "b m"] | None = None
    log_prob: Float[Tensor, " b"] | None = None
    entropy: Float[Tensor, " b"] | None = None


class LSTMDecoder(nn.Module):
    """A decoder of words from the places of a grid, one after the other."""

    batches: Tensor
    baseline: Tensor

    def __init__(self, config: CaptionerConfig, channels: int, target: int):
        super().__init__()
        self.config, size, words = config, config.size, config.embedding
        self.words = nn.Embedding(target, words)
        self.begin = make_linear(channels, 2 * config.layers * size)
        self.cells = Stack("lstm", words + channels, size, config.layers, config.dropout)
        self.cross: Attention | None = None
        if config.attention != "none":
            self.cross = Attention(Additive(size, channels, config.hidden), weighting=make_weighting(config))
        if config.attention == "hard":
            # These go with the weights, so that a resumed run has them: how many batches an objective has counted, and
            # its baseline, 0 where there is none yet.
            self.register_buffer("batches", torch.zeros(()))
            self.register_buffer("baseline", torch.zeros(()))
        self.gate = make_linear(size, 1) if config.gate else None
        self.said = make_linear(size, words)  # L_h
        self.shown = make_linear(channels, words, bias=False)  # L_z
        self.dropout = Dropout(config.dropout)

    def remember(self, features: Float[Tensor, "b m c"]) -> dict[str, Tensor]:
        """Return what a caption starts from: the mean of the picture's annotations, and the first states from it."""
        mean = features.mean(1)
        start = torch.tanh(self.begin(mean)).unflatten(-1, (self.config.layers, 2, self.config.size))
        return {"start": start} if self.cross is not None else {"start": start, "mean": mean}

    @property
    def share(self) -> Float[Tensor, ""] | float:
        """Return the share of captions whose places are sampled; it grows from 0 after the first `settle` batches."""
        config = self.config
        if config.settle == 0:
            return config.sampled
        return config.sampled * (self.batches / config.settle - 1).clamp(0, 1)

    # ---- all words at once

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n e"], dict[str, Tensor]]:
        """Decode, teacher forced: `weights` [b n m]; for hard attention in training `log_prob` and `entropy` [b n],
        and `sampled` [b], the captions whose places were sampled.
        """
        words = self.dropout(self.words(target.padded_ids))
        hidden, extra = self.recur(words, memory.pad())
        return target.unpad(hidden), extra

    def recur(self, words: Float[Tensor, "b n e"], memory: Memory) -> tuple[Float[Tensor, "b n e"], dict[str, Tensor]]:
        """Run the LSTM over all words; return what the readout reads, and what `decode` gives beside it."""
        if words.is_cuda and torch.is_autocast_enabled("cuda"):
            # A step is too small for half precision: every cast is one more kernel.
            with torch.autocast("cuda", enabled=False):
                sentence = {name: tensor.float() for name, tensor in memory.sentence.items()}
                return self.recur(words.float(), Memory(memory.states.float(), memory.span, sentence))
        first, state = self.cells.each[0], memory.sentence["start"]
        look, extra = self.choose_glimpse(memory)
        tops, contexts, looks = [], [], []
        for word in first.project(words).unbind(1):
            before = state[:, -1, 0]
            looks.append(look(before))
            contexts.append(self.apply_gate(before, looks[-1].context))
            top, state = self.cells.step(word + self.project_context(contexts[-1]), state)
            tops.append(top)
        for name in ("weights", "log_prob", "entropy"):
            parts = [getattr(each, name) for each in looks]
            if parts[0] is not None:
                extra[name] = torch.stack(parts, 1)
        return self.read(words, torch.stack(tops, 1), torch.stack(contexts, 1)), extra

    def choose_glimpse(self, memory: Memory) -> tuple[Callable[[Float[Tensor, "b d"]], Glimpse], dict[str, Tensor]]:
        """Choose the function that gives the context of a step; also what an objective needs from before the first."""
        if self.cross is None:
            mean = memory.sentence["mean"]
            return lambda query: Glimpse(mean), {}
        attention, soft = self.cross, self.config.attention == "soft"
        keys, usual = attention.prepare(memory.states), WEIGHTINGS[self.config.attention]
        if not soft and not self.training:
            return lambda query: Glimpse(attention(query[:, None], keys)[:, 0]), {}
        if type(attention.weighting) is not usual or (soft and not can_bypass(attention, scores=(Additive,))):

            def watched(query: Tensor) -> Glimpse:
                weights = attention.look(query[:, None], keys).weights[:, 0]
                return Glimpse(attention(query[:, None], keys)[:, 0], weights)

            return watched, {}

        # With one query a caption there is little more to a call than finding out how to serve it. And tanh(x) is
        # 2σ(2x) - 1: a sigmoid is several times as fast on a CPU, and to a softmax the 1 makes no difference.
        score, fast = attention.score, is_standard(attention, (Additive,), (usual,))
        if fast:
            doubled, vector = 2 * keys.keys, 2 * cast(Additive, score).v

        def scores(query: Tensor) -> Tensor:
            if not fast:
                return score.compare(score.ask(query[:, None]), keys.keys)[:, 0]
            return torch.sigmoid(2 * score.ask(query[:, None]) + doubled) @ vector

        if soft:
            return lambda query: attend_places(torch.softmax(scores(query), -1), keys.values), {}
        if self.config.attention == "straight-through":
            return lambda query: attend_places(attention.weighting(scores(query)), keys.values), {}
        sampled = torch.rand(len(memory.states), device=memory.states.device) < self.share
        return lambda query: sample_place(scores(query), keys.values, sampled), {"sampled": sampled}

    # ---- the parts of a step

    def apply_gate(self, before: Float[Tensor, "r d"], context: Float[Tensor, "r c"]) -> Float[Tensor, "r c"]:
        """Compute β z: the context times how much the picture counts for a word."""
        return context if self.gate is None else torch.sigmoid(self.gate(before)) * context

    def project_context(self, context: Float[Tensor, "r c"]) -> Float[Tensor, "r g"]:
        """Project the context to its part of the first cell's input."""
        return self.cells.each[0].project(context, self.config.embedding, bias=False)

    def read(
        self, words: Float[Tensor, "*b e"], states: Float[Tensor, "*b d"], contexts: Float[Tensor, "*b c"]
    ) -> Float[Tensor, "*b e"]:
        """Compute the deep output, before L_o."""
        return self.dropout(words + self.said(states) + self.shown(contexts))

    # ---- word by word

    def start(self, memory: Memory, rows: int, size: int, coverage: bool) -> State:
        """Return the state before the first word; places are projected once."""
        memory = memory.pad()
        row = {"state": repeat_rows(memory.sentence["start"], rows)}
        if self.cross is None:
            return State({"mean": memory.sentence["mean"].detach().clone()}, row, rows)
        keys = self.cross.prepare(memory.states)
        if coverage:
            row["coverage"] = keys.keys.new_zeros(len(keys.keys) * rows, keys.keys.shape[1])
        memory_copy = Prepared(keys.keys.detach().clone(), keys.values.detach().clone(), self.cross)
        return State({"memory": memory_copy}, row, rows)

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r e"], State]:
        """Read one word of every row."""
        words, before = self.dropout(self.words(tokens)), state.row["state"].clone()
        query = before[:, -1, 0]
        if self.cross is None:
            mean = state.sentence["mean"]
            context = mean[:, None].expand(-1, state.rows, -1).flatten(0, 1)
        else:
            context = attend_rows(self.cross, query, state)
        context = self.apply_gate(query, context)
        top, after = self.cells.step(self.cells.each[0].project(words) + self.project_context(context), before)
        state.row["state"].copy_(after)
        return self.read(words, top, context), state


def make_weighting(config: CaptionerConfig) -> weighting.Weighting | None:
    """Make the weighting of hard or straight-through attention; None for soft."""
    if config.attention == "straight-through":
        return weighting.Gumbel(config.tau)
    return weighting.Hard() if config.attention == "hard" else None


def attend_places(weights: Float[Tensor, "b m"], features: Float[Tensor, "b m c"]) -> Glimpse:
    """Sum the places by their weights."""
    return Glimpse(torch.bmm(weights[:, None], features)[:, 0], weights)


def sample_place(
    scores: Float[Tensor, "b m"], features: Float[Tensor, "b m c"], sampled: Bool[Tensor, " b"]
) -> Glimpse:
    """Sample one place for each caption of `sampled`; for the others, sum all places by their probability."""
    log_probs = scores.log_softmax(-1)
    probabilities = log_probs.exp()
    picked = weighting.sample_key(probabilities)[:, None]
    one = torch.zeros_like(probabilities).scatter(-1, picked, 1.0)
    return attend_places(torch.where(sampled[:, None], one, probabilities), features)._replace(
        log_prob=log_probs.gather(-1, picked)[:, 0].masked_fill(~sampled, 0.0),
        entropy=-(probabilities * log_probs).sum(-1),
    )
