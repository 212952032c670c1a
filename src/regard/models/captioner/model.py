"""Show, attend and tell: a picture to a grid of features, and a decoder that looks at its places word by word.

Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel and Bengio 2015 (arXiv:1502.03044). The paper's annotations are a
trained VGG's 14 × 14 places; here the grid is that of a small ResNet trained along with the words, or of a `timm` or
`torchvision` backbone. Its places, row by row, are the memory; which of them a word looked at is read off the decoder's
attention as of any other source, and `Memory.grid` says how they lie.
"""

# b pictures or captions · n words · m places · h w height and width · d width · v vocabulary · r rows
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Lengths, State
from regard.kernels import Linear
from regard.models.captioner.backbone import Backbone, make_backbone
from regard.models.captioner.blocks import BlockDecoder
from regard.models.captioner.lstm import LSTMDecoder
from regard.models.config import CaptionerConfig
from regard.models.contract import Memory, Model, Pictures, Reinforcement, Tokens
from regard.models.layers.recurrent import make_readout
from regard.models.notation import Notation, Reading, additive
from regard.models.weights import load_weights


class CaptionerModel(Model):
    """A network that turns a picture into a grid of features, and an LSTM or a Transformer that describes it."""

    def __init__(self, config: CaptionerConfig, source: int, target: int):
        super().__init__()
        self.config, self.notation = config, make_notation(config)
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
            grid = self.decoder.embed_grid(grid)
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


def make_notation(config: CaptionerConfig) -> Notation:
    """Return the paper's formulas for the LSTM decoder; a Transformer has those of attention in general."""
    if config.decoder != "lstm":
        return Notation()
    context = "ā" if config.attention == "none" else "Σ α_ti a_i"
    weighed = additive("h_{t−1}", "a_i", "α_ti", "Σ", "the decoder's state before this word")
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
    )
