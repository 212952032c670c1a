"""The options of `transformer`. Imports no torch."""

from dataclasses import dataclass
from typing import Any, Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import DEEPEST, HEADS, LONGEST, WIDEST, ModelConfig, check_divisible

__all__ = ["TransformerConfig"]

WINDOW_RADIUS = {"window": 8, "convolution": 1}  # words on each side, where model.reach says nothing


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Options of `transformer`."""

    size: int = option(256, "width of the model", least=1, most=WIDEST)
    heads: int = option(4, "attention heads", least=1, most=HEADS)
    layers: int = option(3, "blocks of the encoder, and of the decoder", least=1, most=DEEPEST)
    decoder_layers: int | None = option(
        None, "blocks of the decoder, where they are not as many", least=1, most=DEEPEST
    )
    hidden: int = option(1024, "width of the feed-forward nets", least=1, most=WIDEST)
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = option("sinusoidal", "how order is told")
    join: Literal["add", "concatenate"] = option("add", "how sinusoidal and learned positions meet the embeddings")
    length: int = option(1024, "positions that learned ones know", least=1, most=LONGEST)
    norm: Literal["pre", "post", "none"] = option(
        "pre", "layer norm before each part, or after its residual (the paper), or none"
    )
    residual: bool = option(True, "each part's input is added to its output; false: it is not")
    feed_forward: bool = option(True, "blocks have a feed-forward net behind their attention; false: they do not")
    tied: Literal["none", "output", "all"] = option(
        "output", "the output projection is the target's embedding; all: the source's too (needs a joint tokenizer)"
    )
    attention_dropout: float = option(0.0, "dropout on attention weights", least=0, below=1)
    score: Literal["dot", "additive"] = option("dot", "how a head compares a query and a key")
    scaled: bool = option(True, "dot products are divided by √d_k; false: they are not")
    depth: int | None = option(
        None, "d_k, the width of a head's queries and keys, where not size / heads", least=1, most=WIDEST
    )
    split: Literal["projection", "input"] = option(
        "projection", "each head projects the whole input (the paper), or its own slice, without an output projection"
    )
    mixing: Literal["attention", "window", "convolution", "recurrence"] = option(
        "attention",
        "what words meet by in the encoder's blocks: attention to all, or to those near; a gated convolution of those "
        "near; a GRU from either end (the decoder is the same)",
    )
    reach: int | None = option(
        None,
        "how many words on each side are near: by default 8 of a window, and 1, a kernel of three, of a convolution",
        least=1,
        most=LONGEST,
    )

    @classmethod
    def choose(cls, long_lines: bool, joint: bool) -> dict[str, Any]:
        """Pre-norm, and one table of embeddings where it serves both sides.

        Positions by their distance learn and generalise better than the paper's, but say nothing between source and
        target, which takes long lines long to find out.
        """
        positions = "sinusoidal" if long_lines else "rotary"
        tied = "all" if joint else "output"
        return {"positions": positions, "norm": "pre", "attention_dropout": 0.1, "tied": tied}

    def suitable_rate(self) -> float | None:
        """A lower one for wide models."""
        return 7e-4 if self.size >= 512 else None

    def known_positions(self) -> int | None:
        """How many positions the learned ones are; None: any number."""
        return self.length if self.positions == "learned" else None

    def ties_both_sides(self) -> bool:
        """Whether all embeddings are one table."""
        return self.tied == "all"

    def __post_init__(self) -> None:
        check_divisible(self.heads, self.size)
        if self.mixing == "recurrence" and self.size % 2:
            raise ConfigError("size", f'{self.size} given with mixing = "recurrence", expected an even width')
        if self.reach is not None and self.mixing not in WINDOW_RADIUS:
            raise ConfigError("reach", f'{self.reach} given with mixing = "{self.mixing}", which has no near words')
        depth = self.depth or self.size // self.heads
        if self.positions == "rotary" and depth % 2:
            raise ConfigError("positions", f"rotary needs heads of an even width, {depth} is odd")
        if self.score == "additive" and not self.scaled:
            raise ConfigError("scaled", 'false given with score = "additive", which has no dot products to scale')
        if self.join == "concatenate" and self.positions not in ("sinusoidal", "learned"):
            raise ConfigError(
                "join", f'concatenate given with positions = "{self.positions}", which are not vectors to be joined'
            )
