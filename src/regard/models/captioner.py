r"""Show, attend and tell: a CNN turns a picture into a grid of features; a decoder attends to its places at every word.

Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel and Bengio 2015 (arXiv:1502.03044). The paper's annotations are the
14 × 14 places of a pretrained VGG; here the grid comes from a small ResNet that is trained with the decoder, or from a
`timm` or `torchvision` backbone. The memory holds its places row by row, and `Memory.grid` holds its height and width.
The decoder's attention weights show which places a word attends to, as for any other source.

At every word the LSTM (sections 3.1.2 and 4) attends to the whole picture, to one place, or not at all. The places
$a_i$ of the grid are the annotations; $y_{t-1}$ is the word just read.

- $c_0$ and $h_0$ are each a tanh layer of the mean annotation.
- $e_{ti} = v^\top \tanh(W h_{t-1} + U a_i + b)$: the query is the state *before* the word; $\alpha_t$ its softmax.
- Soft: $\hat z_t = \beta_t \sum_i \alpha_{ti} a_i$, where the gate $\beta_t = \sigma(f_\beta(h_{t-1}))$ is one number
  per word.
- Hard: training samples a place from $\alpha_t$ for a share `sampled` of the sentences and uses the weighted sum for
  the others. Evaluation takes the likeliest place, so that a search is deterministic. The gate is kept. A departure:
  while the grid is untrained, sampled places carry no information and teach the model to ignore the picture. So the
  first `settle` batches sample nothing, and over as many more the share grows to `sampled`.
- Straight through: training samples a place from $\alpha_t$ with Gumbel noise g and uses the gradient of
  $\mathrm{softmax}((e_t + g)/\tau)$ over all places (Jang et al. 2017, arXiv:1611.01144). Evaluation takes the
  likeliest place, as in hard attention.
- None: $\hat z_t = \beta_t \bar a$, the mean of the grid at every word. Only the attention's parameters are missing.
- The cell computes $h_t$ from $[E y_{t-1}; \hat z_t]$; the deep output is $L_o(E y_{t-1} + L_h h_t + L_z \hat z_t)$
  (equation 7), where $L_o$ is the readout. $L_h$, $L_o$, the layers of $c_0$ and $h_0$, and the score have biases.

With several layers, the top layer's state is the query, and the first layer reads the picture. Dropout applies to word
embeddings, between layers and before the readout, never from step to step.

The decoder of Vaswani et al. 2017 (arXiv:1706.03762) can replace the LSTM: its blocks attend to the places, which are
projected to the model's width and get the sinusoids of their row and column, to tell left from right.
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
    """A network that turns a picture into a grid of features, and an LSTM or a Transformer that writes the caption."""

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
        """Decode all words of all captions; the decoder's docstring lists the tensors it returns for objectives."""
        return self.decoder.decode(memory, target)

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return the state before the first word; a decoder without attention keeps no coverage."""
        return self.decoder.start(memory, rows, size, coverage)

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Read one word of every row."""
        hidden, state = self.decoder.step(tokens, state)
        return self.output(hidden), state

    def hidden_state(self, state: State) -> Float[Tensor, "r d"] | None:
        """Return h of the LSTM's top layer; None for a Transformer."""
        return state.row["state"][:, -1, 0] if isinstance(self.decoder, LSTMDecoder) else None

    @cached_property
    def notation(self) -> Notation:
        """Return the paper's formulas for the LSTM decoder, or those of attention in general for a Transformer."""
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
    """The context that one word reads from the picture, with the weights and log-probabilities that objectives need."""

    context: Float[Tensor, "b c"]
    weights: Float[Tensor, "b m"] | None = None
    log_prob: Float[Tensor, " b"] | None = None
    entropy: Float[Tensor, " b"] | None = None


class LSTMDecoder(nn.Module):
    """An LSTM decoder that attends to the places of a grid and writes a caption word by word."""

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
            # The objective's batch count and its baseline (0 before the first batch). They are buffers, so that
            # checkpoints hold them.
            self.register_buffer("batches", torch.zeros(()))
            self.register_buffer("baseline", torch.zeros(()))
        self.gate = make_linear(size, 1) if config.gate else None
        self.said = make_linear(size, words)  # L_h
        self.shown = make_linear(channels, words, bias=False)  # L_z
        self.dropout = Dropout(config.dropout)

    def remember(self, features: Float[Tensor, "b m c"]) -> dict[str, Tensor]:
        """Return the LSTM's first states and, without attention, the mean annotation that they are computed from."""
        mean = features.mean(1)
        start = torch.tanh(self.begin(mean)).unflatten(-1, (self.config.layers, 2, self.config.size))
        return {"start": start} if self.cross is not None else {"start": start, "mean": mean}

    @property
    def share(self) -> Float[Tensor, ""] | float:
        """Return the share of captions that sample their places; it is 0 for `settle` batches, then grows."""
        config = self.config
        if config.settle == 0:
            return config.sampled
        return config.sampled * (self.batches / config.settle - 1).clamp(0, 1)

    # ---- all words at once

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n e"], dict[str, Tensor]]:
        """Decode with teacher forcing, and return `weights` [b n m].

        Hard attention in training also returns `log_prob` and `entropy` [b n], and `sampled` [b], a mask of captions.
        """
        words = self.dropout(self.words(target.padded_ids))
        hidden, extra = self.recur(words, memory.pad())
        return target.unpad(hidden), extra

    @without_autocast("cuda")
    def recur(self, words: Float[Tensor, "b n e"], memory: Memory) -> tuple[Float[Tensor, "b n e"], dict[str, Tensor]]:
        """Run the LSTM over all words; return the readout's input and the named tensors that `decode` returns."""
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
        """Return the function that computes a step's glimpse, and `sampled` for hard attention in training."""
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

        # With one query per caption, choosing a backend would take most of an attention call. And tanh(x) is
        # 2σ(2x) - 1: a sigmoid is several times as fast on a CPU, and the softmax cancels the constant.
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
        """Compute β z: multiply the context by the gate."""
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
    """Compute the sum of the places, weighted by attention."""
    return Glimpse(torch.bmm(weights[:, None], features)[:, 0], weights)


def sample_place(
    scores: Float[Tensor, "b m"], features: Float[Tensor, "b m c"], sampled: Bool[Tensor, " b"]
) -> Glimpse:
    """Sample one place for each caption in `sampled`; for the others, sum all places weighted by probability."""
    log_probs = scores.log_softmax(-1)
    probabilities = log_probs.exp()
    picked = weighting.sample_key(probabilities)[:, None]
    one = torch.zeros_like(probabilities).scatter(-1, picked, 1.0)
    return attend_places(torch.where(sampled[:, None], one, probabilities), features)._replace(
        log_prob=log_probs.gather(-1, picked)[:, 0].masked_fill(~sampled, 0.0),
        entropy=-(probabilities * log_probs).sum(-1),
    )


class BlockDecoder(nn.Module):
    """A Transformer decoder that attends to the places of a grid; training decodes all words at once."""

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
        """Decode all words at once; with a penalty, training returns `weights` [b n m], means over heads and blocks."""
        memory.cross_span(target)  # raises an error for a packed target
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
