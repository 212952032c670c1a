"""The options of `encoder`. Imports no torch."""

from dataclasses import dataclass
from typing import Any, Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import DEEPEST, HEADS, LONGEST, WIDEST, ModelConfig, check_divisible

__all__ = ["EncoderConfig"]


@dataclass(frozen=True)
class EncoderConfig(ModelConfig):
    """Options of `encoder`."""

    job: Literal["classify", "language-model"] = option("classify", "a text classifier, or a causal language model")
    size: int = option(256, "width of the model", least=1, most=WIDEST)
    heads: int = option(4, "attention heads", least=1, most=HEADS)
    layers: int = option(3, "blocks", least=1, most=DEEPEST)
    hidden: int = option(1024, "width of the feed-forward nets", least=1, most=WIDEST)
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = option("sinusoidal", "how order is told")
    length: int = option(1024, "positions that learned ones know", least=1, most=LONGEST)
    norm: Literal["pre", "post", "none"] = option("pre", "layer norm before each part, or after its residual, or none")
    residual: bool = option(True, "each part's input is added to its output; false: it is not")
    feed_forward: bool = option(True, "blocks have a feed-forward net behind their attention; false: they do not")
    pooling: Literal["mean", "attention"] = option("mean", "how a classifier makes one vector of many")
    tied: bool = option(True, "a language model's output projection is its embedding")
    attention_dropout: float = option(0.0, "dropout on attention weights", least=0, below=1)

    @property
    def writes(self) -> bool:
        """Whether text comes out, and no label: then there is no source."""
        return self.job == "language-model"

    @classmethod
    def choose(cls, long_lines: bool, joint: bool) -> dict[str, Any]:
        """Pre-norm and positions as the Transformer has them."""
        positions = "sinusoidal" if long_lines else "rotary"
        return {"positions": positions, "norm": "pre", "attention_dropout": 0.1}

    def known_positions(self) -> int | None:
        """How many positions the learned ones are; None: any number."""
        return self.length if self.positions == "learned" else None

    def __post_init__(self) -> None:
        check_divisible(self.heads, self.size)
        if self.positions == "rotary" and self.size // self.heads % 2:
            raise ConfigError("positions", f"rotary needs heads of an even width, {self.size} / {self.heads} is odd")
