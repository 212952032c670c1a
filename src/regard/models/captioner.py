r"""Show, attend and tell: a picture to a grid of features, and a decoder that looks at its places word by word.

Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel and Bengio 2015 (arXiv:1502.03044). The paper's annotations are a
trained VGG's 14 × 14 places; here the grid is that of a small ResNet trained along with the words, or of a `timm` or
`torchvision` backbone. Its places, row by row, are the memory; which of them a word looked at is read off the decoder's
attention as of any other source, and `Memory.grid` says how they lie.

The LSTM (sections 3.1.2 and 4) looks at every word at the whole picture, at one place, or not at all. Places $a_i$ of
the grid are the annotations, $y_{t-1}$ is the word just read.

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

In place of the LSTM there may be the decoder of Vaswani et al. 2017 (arXiv:1706.03762): blocks over the words so far
attend to the places, which are projected to the width of the model and get the sinusoids of their row and column:
without them blocks could not tell left from right.
"""

# b pictures or captions · n words · m places · h w height and width of the grid · c channels · e width of a word
# d of a state or of the model · g gates · l layers · v vocabulary · r rows
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Attention,
    Decoder,
    Lengths,
    Sinusoidal2D,
    State,
    weighting,
)
from regard.kernels import Linear
from regard.models.config import CaptionerConfig
from regard.models.contract import (
    Memory,
    Model,
    Notation,
    Pictures,
    Reading,
    Reinforcement,
    Tokens,
    load_weights,
    name_additive_stages,
)
from regard.models.convnet import Backbone, make_backbone
from regard.models.encoders import (
    Embedding,
    collect_weights,
    cross_attentions,
    initialise,
    step_with_coverage,
)
from regard.models.recurrent import (
    Dropout,
    Stack,
    attend_rows,
    can_bypass,
    is_standard,
    make_linear,
    make_readout,
    repeat_rows,
    without_autocast,
)


class CaptionerModel(Model):
    """A network that turns a picture into a grid of features, and an LSTM or a Transformer that describes it."""

    def __init__(self, config: CaptionerConfig, source: int, target: int):
        super().__init__()
        self.config = config
        self.backbone = make_backbone(config)
        channels = cast(int, self.backbone.width)
        self.decoder: LSTMDecoder | BlockDecoder
        if config.decoder == "lstm":
            self.decoder = LSTMDecoder(config, channels, target)
            self.readout = make_readout(config.embedding, target)
        else:
            self.decoder = BlockDecoder(config, channels, target)
            self.readout = Linear(config.size, target)
            nn.init.zeros_(self.readout.bias)
            self.readout.weight = self.decoder.words.tokens.weight

    @property
    def doubly_stochastic(self) -> float:
        """Return λ, the weight of soft attention's penalty."""
        return self.config.penalty if self.config.attention == "soft" else 0.0

    @property
    def reinforcement(self) -> Reinforcement | None:
        """Return the learning rule of hard attention, with its decoder's counters."""
        config, decoder = self.config, self.decoder
        if config.attention != "hard" or not isinstance(decoder, LSTMDecoder):
            return None
        return Reinforcement(config.reinforce, config.entropy, decoder.baseline, decoder.batches)

    def load_pretrained(self) -> None:
        """Load the user's own weights into the backbone."""
        if self.config.weights is not None:
            net = self.backbone.net if isinstance(self.backbone, Backbone) else self.backbone
            load_weights(net, self.config.weights)

    def encode(self, source: Pictures) -> Memory:
        """Encode each picture as the places of its grid, row by row."""
        grid = self.backbone(source.pixels)
        if isinstance(self.decoder, BlockDecoder):
            # Projected to the width of the model, with the sinusoids of each row and column.
            grid = self.decoder.positions(self.decoder.project(grid.movedim(-3, -1)).movedim(-1, -3))
        features, size = grid.flatten(-2).mT, (grid.shape[-2], grid.shape[-1])
        count = torch.full((len(features),), features.shape[1], device=features.device)
        sentence = self.decoder.remember(features) if isinstance(self.decoder, LSTMDecoder) else {}
        return Memory(features, Lengths(count), sentence, size)

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n d"], dict[str, Tensor]]:
        """Decode all words of all captions; the decoder's own docstring lists what an objective may read."""
        return self.decoder.decode(memory, target)

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return the state before the first word; without attention no coverage is kept."""
        return self.decoder.start(memory, rows, size, coverage)

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Read one word of every row."""
        hidden, state = self.decoder.step(tokens, state)
        return self.output(hidden), state

    def hidden_state(self, state: State) -> Float[Tensor, "r d"] | None:
        """Return h of the LSTM's top layer; a Transformer has none."""
        return state.row["state"][:, -1, 0] if isinstance(self.decoder, LSTMDecoder) else None

    @cached_property
    def notation(self) -> Notation:
        """Return the paper's formulas for the LSTM decoder; a Transformer has those of attention in general."""
        config = self.config
        if config.decoder != "lstm":
            own = {
                "decoder:.*tokens Embedding": "E y_i",
                "decoder:.*positions (Sinusoidal|Embedded)": "y_i + p_i",
                "readout": "logits",
                "decoder: softmax$": "p(y_i | y_{<i}, a)",
            }
            return Notation(boxes=(own, BOXES))
        context = "ā" if config.attention == "none" else "Σ α_ti a_i"
        weighed = name_additive_stages("h_{t−1}", "a_i", "α_ti", "Σ", "the decoder's state before this word")
        weighed["Σ a v"] = ("Σ α_ti a_i", "the places of the picture, weighted and summed")
        gate = "the gate β_t before its sigmoid: how much the picture counts"
        return Notation(
            attentions={"decoder.cross": weighed},
            readout=(
                Reading("decoder.gate", "output", "f_β(h_{t−1})", gate),
                Reading("decoder.shown", "input", f"ẑ_t = {'β_t ' if config.gate else ''}{context}", "what is seen"),
                Reading("decoder.said", "input", "h_t = LSTM(h_{t−1}, [E y_{t−1}; ẑ_t])", "the state after this step"),
                Reading("readout", "input", "E y_{t−1} + L_h h_t + L_z ẑ_t", "what the readout reads"),
            ),
            boxes=(BOXES,),
        )


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
            own = {"hard": weighting.Hard(), "straight-through": weighting.Gumbel(config.tau)}.get(config.attention)
            self.cross = Attention(Additive(size, channels, config.hidden), weighting=own)
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

    @without_autocast("cuda")
    def recur(self, words: Float[Tensor, "b n e"], memory: Memory) -> tuple[Float[Tensor, "b n e"], dict[str, Tensor]]:
        """Run the LSTM over all words; return what the readout reads, and what `decode` gives beside it."""
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
                return score.compare(score.project_query(query[:, None]), keys.keys)[:, 0]
            return torch.sigmoid(2 * score.project_query(query[:, None]) + doubled) @ vector

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
        return State({"memory": keys.copy()}, row, rows)

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


class BlockDecoder(nn.Module):
    """A decoder of words from the places of a grid; known words are decoded all at once."""

    def __init__(self, config: CaptionerConfig, channels: int, target: int):
        super().__init__()
        self.config = config
        self.words = Embedding(target, config.size, "sinusoidal", "add", 0, config.dropout)
        self.project = Linear(channels, config.size)
        self.positions = Sinusoidal2D(config.size)
        self.stack = Decoder(
            config.size,
            config.heads,
            config.layers,
            config.hidden,
            dropout=config.dropout,
            feed_dropout=config.dropout,
        )
        initialise(self)

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "b n d"], dict[str, Tensor]]:
        """Decode all words at once; `weights` [b n m], in training if they count, are means over heads and blocks."""
        memory.cross_span(target)  # refuses a packed one
        x = self.words(target.ids, target.span)
        if not (self.training and self.config.penalty):
            return self.stack(x, memory.states), {}
        with collect_weights(cross_attentions(self.stack)) as weights:
            x = self.stack(x, memory.states)
        return x, {"weights": torch.stack(weights).mean((0, 2))}

    def start(self, memory: Memory, rows: int, size: int, coverage: bool) -> State:
        """Return empty caches, and the places projected once for each block."""
        state = self.stack.start(memory.states, size, rows=rows)
        if coverage:
            state.row["coverage"] = memory.states.new_zeros(len(memory.states) * rows, memory.states.shape[1])
        return state

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r d"], State]:
        """Read one word of every row."""
        x = self.words(tokens[:, None], None, state.row["past.0"].length.clone())
        if state.coverage is None:
            return self.stack.step(x, state)[:, 0], state
        return step_with_coverage(self.stack, x, state)[:, 0], state


BOXES = {
    "encoder:input": "pixels",
    "decoder:input": "y_0 … y_{n−1}",
    "backbone relu": "a_1 … a_L",
    "decoder mean": "ā",
    "encoder:decoder tanh": "c_0, h_0 = f_{init}(ā)",
    "words Embedding": "E y_{t−1}",
    r"score\.query": "W h_{t−1}",
    r"score\.key": "U a_i",
    "cross score$": "e_{ti} = f_{att}(a_i, h_{t−1})",
    r"decoder\.cross weights$": "α_{ti}",
    r"decoder\.cross sum$": "Σ_i α_{ti} a_i",
    "gate Linear": "f_β(h_{t−1})",
    "decoder sigmoid": "β_t",
    "decoder mul": "ẑ_t",
    r"cells\.layers\.\d+ ": "h^{(ℓ)}_t",
    "said": "L_h h_t",
    "shown": "L_z ẑ_t",
    "readout": "L_o (…)",
    " softmax$": "p(y_t | a, y_{<t})",
}
