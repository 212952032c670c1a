"""The options of `transformer`. Imports no torch."""

from dataclasses import dataclass
from typing import Any, Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import DEEPEST, HEADS, LONGEST, WIDEST, ModelConfig, check_activation, check_divisible

WINDOW_RADIUS = {"window": 8, "convolution": 1}  # words on each side, where model.reach says nothing


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Options of `transformer`."""

    size: int = option(256, "width of the model", least=1, most=WIDEST)
    heads: int = option(4, "number of attention heads", least=1, most=HEADS)
    layers: int = option(3, "number of blocks of encoder and decoder each", least=1, most=DEEPEST)
    decoder_layers: int | None = option(None, "number of blocks of the decoder, if different", least=1, most=DEEPEST)
    hidden: int = option(1024, "width of the feed-forward nets", least=1, most=WIDEST)
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = option(
        "sinusoidal", "kind of position encoding"
    )
    join: Literal["add", "concatenate"] = option(
        "add", "how to combine sinusoidal and learned positions with the embeddings"
    )
    sines: Literal["interleaved", "halves", "fairseq"] = option(
        "interleaved",
        "order of sinusoidal positions: sine and cosine in turn (the paper), all sines first (Marian), or fairseq's "
        "(M2M-100, NLLB)",
    )
    first_position: int | None = option(
        None,
        "number of the first sinusoidal position; default: 2 for fairseq's, 0 for the others",
        least=0,
        most=LONGEST,
    )
    length: int = option(1024, "number of positions with learned embeddings", least=1, most=LONGEST)
    norm: Literal["pre", "post", "none"] = option(
        "pre", "layer norm before each sublayer, after its residual (the paper), or none"
    )
    norm_epsilon: float = option(1e-5, "number that layer norms add to a variance", above=0, most=1)
    residual: bool = option(True, "add each sublayer's input to its output")
    feed_forward: bool = option(True, "have a feed-forward net after the attention in each block")
    activation: Literal["relu", "gelu", "silu"] = option("relu", "activation of the feed-forward nets")
    scale_embeddings: bool = option(True, "multiply embeddings by √size")
    tied: Literal["none", "output", "all"] = option(
        "output",
        "share the target embedding with the output projection; all: with the source embedding, too (joint tokenizer)",
    )
    output_bias: bool = option(True, "have a bias in the output projection")
    fixed_bias: bool = option(False, "leave that bias as it is in training (M2M-100, NLLB)")
    start_as_end: bool = option(False, "read </s> in place of <s> where a target begins (M2M-100, NLLB)")
    attention_dropout: float = option(0.0, "dropout on attention weights", least=0, below=1)
    score: Literal["dot", "additive"] = option("dot", "how a head scores a query against a key")
    scaled: bool = option(True, "divide dot products by √d_k")
    depth: int | None = option(
        None, "d_k, width of a head's queries and keys; default: size / heads", least=1, most=WIDEST
    )
    split: Literal["projection", "input"] = option(
        "projection",
        "each head projects the whole input (the paper), or takes its own slice, without an output projection",
    )
    mixing: Literal["attention", "window", "convolution", "recurrence"] = option(
        "attention",
        "what connects words in the encoder's blocks: attention to all words or to a window of neighbours, a gated "
        "convolution over neighbours, or a GRU in each direction (the decoder stays the same)",
    )
    reach: int | None = option(
        None,
        "number of neighbours on each side; default: 8 for a window, 1 (a kernel of three) for a convolution",
        least=1,
        most=LONGEST,
    )
    adapter: int = option(
        0,
        "rank of low-rank adapters, trained in place of the weights of attentions and feed-forward nets with --from; "
        "0: none",
        least=0,
        most=WIDEST,
    )

    @classmethod
    def choose(cls, long_lines: bool, joint: bool) -> dict[str, Any]:
        """Choose pre-norm, and one table of embeddings where it serves both sides.

        Positions by their distance learn and generalise better than the paper's, but say nothing between source and
        target, which takes long lines long to find out.
        """
        positions = "sinusoidal" if long_lines else "rotary"
        tied = "all" if joint else "output"
        return {"positions": positions, "norm": "pre", "attention_dropout": 0.1, "tied": tied}

    def suitable_rate(self) -> float | None:
        """Return a lower learning rate for wide models."""
        return 7e-4 if self.size >= 512 else None

    def adapter_rank(self) -> int:
        """Return the rank of the adapters that are trained in place of the weights; 0: none."""
        return self.adapter

    def known_positions(self) -> int | None:
        """Return the number of learned positions; None: any number."""
        return self.length if self.positions == "learned" else None

    def ties_both_sides(self) -> bool:
        """Return whether all embeddings are one table."""
        return self.tied == "all"

    def __post_init__(self) -> None:
        check_divisible(self.heads, self.size)
        if self.mixing == "recurrence" and self.size % 2:
            raise ConfigError("size", f'{self.size} given with mixing = "recurrence", expected an even width')
        if self.reach is not None and self.mixing not in WINDOW_RADIUS:
            raise ConfigError("reach", f'{self.reach} given with mixing = "{self.mixing}", which has no neighbours')
        depth = self.depth or self.size // self.heads
        if self.positions == "rotary" and depth % 2:
            raise ConfigError("positions", f"rotary needs heads of an even width, {depth} is odd")
        if self.score == "additive" and not self.scaled:
            raise ConfigError("scaled", 'false given with score = "additive", which has no dot products to scale')
        if self.join == "concatenate" and self.positions not in ("sinusoidal", "learned"):
            raise ConfigError(
                "join", f'concatenate given with positions = "{self.positions}", which cannot be concatenated'
            )
        if self.sines != "interleaved" and self.positions != "sinusoidal":
            raise ConfigError("sines", f'{self.sines} given with positions = "{self.positions}", which has no sines')
        if self.first_position is not None and self.positions != "sinusoidal":
            raise ConfigError(
                "first_position", f'{self.first_position} given with positions = "{self.positions}", which has no sines'
            )
        if self.fixed_bias and not self.output_bias:
            raise ConfigError("fixed_bias", "true given with output_bias = false, which leaves no bias to fix")
        check_activation(self.activation, self.feed_forward)
