"""A Transformer that writes captions: blocks over the words so far attend to the places of a grid.

The decoder of Vaswani et al. 2017 (arXiv:1706.03762) over the annotations of Xu et al. 2015 (arXiv:1502.03044), in
place of the LSTM. Places are projected to the width of the model and get the sinusoids of their row and column: without
them blocks could not tell left from right.
"""

# b captions · n words · m places · c channels · h w height and width of the grid · d width · r rows
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Block, Decoder, Heads, Sinusoidal2D, State
from regard.kernels import Linear
from regard.models.config import CaptionerConfig
from regard.models.contract import Memory, Tokens
from regard.models.layers.embedding import Embedding, initialise


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

    def embed_grid(self, grid: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d h w"]:
        """Project the grid to the width of the model, and add the sinusoids of each row and column."""
        return cast(Tensor, self.positions(self.project(grid.movedim(-3, -1)).movedim(-1, -3)))

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "b n d"], dict[str, Tensor]]:
        """Decode all words at once; `weights` [b n m], in training if they count, are means over heads and blocks."""
        memory.cross_span(target)  # refuses a packed one
        x = self.words(target.ids, target.span)
        if not (self.training and self.config.penalty):
            return self.stack(x, memory.states), {}
        with collect_weights(self.cross_attentions) as weights:
            x = self.stack(x, memory.states)
        return x, {"weights": torch.stack(weights).mean((0, 2))}

    @property
    def cross_attentions(self) -> list[Heads]:
        """Name the attentions to the picture, the first block's first."""
        return [cast(Heads, cast(Block, block).cross) for block in self.stack.blocks]

    def start(self, memory: Memory, rows: int, size: int, coverage: bool) -> State:
        """Return empty caches, and the places projected once for each block."""
        state = self.stack.start(memory.states, size, rows=rows)
        if coverage:
            state.row["coverage"] = memory.states.new_zeros(len(memory.states) * rows, memory.states.shape[1])
        return state

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r d"], State]:
        """Read one word of every row. Coverage is the last block's, the mean of its heads."""
        x = self.words(tokens[:, None], None, state.row["past.0"].length.clone())
        if state.coverage is None:
            return self.stack.step(x, state)[:, 0], state
        with collect_weights(self.cross_attentions[-1:]) as weights:
            x = self.stack.step(x, state)
        state.coverage.add_(weights[0].mean(1).flatten(0, 1))
        return x[:, 0], state


@contextmanager
def collect_weights(attentions: Sequence[Heads]) -> Iterator[list[Float[Tensor, "b a n m"]]]:
    """Collect the weights of these attentions' calls, with their graph, while the context is open."""
    weights: list[Tensor] = []
    mine = threading.get_ident()

    def keep(module: Heads, arguments: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> None:
        if threading.get_ident() == mine:  # another thread may search with the same model
            weights.append(module.look(*arguments, **options).weights)

    hooks = [each.register_forward_hook(keep, with_kwargs=True) for each in attentions]
    try:
        yield weights
    finally:
        for hook in hooks:
            hook.remove()
