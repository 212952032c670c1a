"""The options of `encoder`. Imports no torch."""

from dataclasses import dataclass
from typing import Any, Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import DEEPEST, HEADS, LONGEST, WIDEST, ModelConfig, check_activation, check_divisible


@dataclass(frozen=True)
class EncoderConfig(ModelConfig):
    """Options of `encoder`."""

    job: Literal["classify", "language-model"] = option("classify", "text classifier or causal language model")
    size: int = option(256, "width of the model", least=1, most=WIDEST)
    heads: int = option(4, "number of attention heads", least=1, most=HEADS)
    layers: int = option(3, "number of blocks", least=1, most=DEEPEST)
    hidden: int = option(1024, "width of the feed-forward nets", least=1, most=WIDEST)
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = option(
        "sinusoidal", "kind of position encoding"
    )
    length: int = option(1024, "number of positions with learned embeddings", least=1, most=LONGEST)
    norm: Literal["pre", "post", "none"] = option("pre", "layer norm before each sublayer, after its residual, or none")
    residual: bool = option(True, "add each sublayer's input to its output")
    feed_forward: bool = option(True, "have a feed-forward net after the attention in each block")
    activation: Literal["relu", "gelu", "silu"] = option("relu", "activation of the feed-forward nets")
    pooling: Literal["mean", "attention"] = option("mean", "how a classifier pools all positions into one vector")
    tied: bool = option(True, "share the embedding with the output projection (language model)")
    attention_dropout: float = option(0.0, "dropout on attention weights", least=0, below=1)
    adapter: int = option(
        0,
        "rank of low-rank adapters, trained in place of the weights of attentions and feed-forward nets with --from; "
        "0: none",
        least=0,
        most=WIDEST,
    )

    @property
    def writes(self) -> bool:
        """Return whether the model writes text instead of naming a label: then it has no source."""
        return self.job == "language-model"

    @classmethod
    def choose(cls, long_lines: bool, joint: bool) -> dict[str, Any]:
        """Choose pre-norm, and positions as the Transformer has them."""
        positions = "sinusoidal" if long_lines else "rotary"
        return {"positions": positions, "norm": "pre", "attention_dropout": 0.1}

    def adapter_rank(self) -> int:
        """Return the rank of the adapters that are trained in place of the weights; 0: none."""
        return self.adapter

    def known_positions(self) -> int | None:
        """Return the number of learned positions; None: any number."""
        return self.length if self.positions == "learned" else None

    def __post_init__(self) -> None:
        check_divisible(self.heads, self.size)
        if self.positions == "rotary" and self.size // self.heads % 2:
            raise ConfigError("positions", f"rotary needs heads of an even width, {self.size} / {self.heads} is odd")
        check_activation(self.activation, self.feed_forward)
