"""Options of every kind of model: `ModelConfig`, which all share, its subclasses and their limits. Imports no torch."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from regard.config import option, show_value
from regard.errors import ConfigError

__all__ = ["Cell", "EncoderDecoderConfig", "ModelConfig"]

Cell = Literal["rnn", "gru", "lstm"]
WIDEST = 65_536  # the width of a vector; a square float32 matrix of this width takes 16 GiB
DEEPEST = 256  # layers
HEADS = 1024
MAX_POSITIONS = 1_048_576
MAX_WEIGHT = 1_000_000  # the weight of a term of the loss; a larger one drowns all other terms in float32
WINDOW_RADIUS = {"window": 8, "convolution": 1}  # words on each side, if model.reach is not set


def check_divisible(heads: int, size: int) -> None:
    if size % heads:
        raise ConfigError("heads", f"{size} is not divisible by {heads}")


@dataclass(frozen=True)
class ModelConfig:
    """The options and methods that the configurations of all kinds share."""

    dropout: float = option(0.1, "dropout: share of activations set to zero in training", least=0, below=1)

    @classmethod
    def choose(cls, long_lines: bool, joint: bool) -> dict[str, Any]:
        """Return options, other than preset and dropout, that suit a text corpus, for a user who names none.

        `long_lines`: the targets are long on average; `joint`: source and target share a vocabulary.
        """
        return {}

    def suitable_rate(self) -> float | None:
        """Return the learning rate that suits this model; None: the default one."""
        return None

    def adapter_rank(self) -> int:
        """Return the rank of the adapters that are trained in place of the weights (the option `adapter`); 0: none."""
        return 0

    def known_positions(self) -> int | None:
        """Return how many positions of a sentence the model can represent (the option `length`); None: any number."""
        return None

    def sees_whole_source(self) -> bool:
        """Return whether a target word attends to the whole source rather than to a window (the option `span`)."""
        return True

    def ties_both_sides(self) -> bool:
        """Return whether source and target share their embeddings (the option `tied`), and so their vocabulary."""
        return False

    def picture_numbers(self, side: int) -> int:
        """Estimate how many numbers the backward pass keeps at least for `side` × `side` pixels; 0: unknown."""
        return 0

    def self_contained(self) -> Self:
        """Return the configuration with Regard's own parts only: counting its weights needs no other library."""
        return self


@dataclass(frozen=True)
class EncoderDecoderConfig(ModelConfig):
    """The options of kinds with a recurrent decoder that attends to an encoder of any type."""

    cell: Cell = option("gru", "recurrent cell of the decoder, and of the encoder unless `encoder` names another")
    nonlinearity: Literal["tanh", "relu"] = option("tanh", "nonlinearity of the cell rnn")
    size: int = option(256, "width of the states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    layers: int = option(1, "number of layers of the encoder", least=1, most=DEEPEST)
    encoder: Literal["rnn", "gru", "lstm", "convolution", "self-attention"] | None = option(
        None, "network that reads the source: a cell, gated convolutions or self-attention; default: the decoder's cell"
    )
    bidirectional: bool = option(False, "a recurrent encoder reads in both directions")
    heads: int = option(4, "number of heads of a self-attention encoder", least=1, most=HEADS)
    reach: int | None = option(
        None,
        "number of neighbours on each side in a convolutional encoder; default: 1 (a kernel of three)",
        least=1,
        most=MAX_POSITIONS,
    )

    @property
    def encoder_name(self) -> Literal["rnn", "gru", "lstm", "convolution", "self-attention"]:
        """Return the name of the encoder: a cell, "convolution" or "self-attention"."""
        return self.encoder or self.cell

    @property
    def has_recurrent_encoder(self) -> bool:
        """Return whether the encoder is recurrent."""
        return self.encoder_name not in ("convolution", "self-attention")

    def __post_init__(self) -> None:
        if self.encoder_name == "self-attention":
            check_divisible(self.heads, self.size)
        if self.reach is not None and self.encoder_name != "convolution":
            raise ConfigError(
                "reach", f'{self.reach} given with an encoder of {self.encoder_name}, expected encoder = "convolution"'
            )


@dataclass(frozen=True)
class RNNConfig(ModelConfig):
    """Options of `rnn`."""

    cell: Cell = option("gru", "rnn (Elman), gru (Cho 2014) or lstm (Sutskever 2014)")
    nonlinearity: Literal["tanh", "relu"] = option("tanh", "nonlinearity of the cell rnn")
    size: int = option(256, "width of the hidden states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    layers: int = option(1, "number of stacked cells", least=1, most=DEEPEST)
    start: Literal["zero", "copy", "tanh"] = option(
        "tanh", "first state of the decoder: zero, the encoder's last, or tanh(V h)"
    )
    context: Literal["every", "start"] = option(
        "every",
        "where the context vector goes: cell and readout at every step (Cho), or only the first state (Sutskever)",
    )
    reverse: bool = option(False, "read the source backwards (Sutskever 2014)")

    def __post_init__(self) -> None:
        if self.context == "start" and self.start == "zero":
            raise ConfigError("start", 'zero given with context = "start": the decoder would see nothing of the source')


@dataclass(frozen=True)
class RNNSearchConfig(EncoderDecoderConfig):
    """Options of `rnnsearch`."""

    size: int = option(256, "width of the states of each direction and of the decoder", least=1, most=WIDEST)
    hidden: int = option(256, "width of the alignment model", least=1, most=WIDEST)
    bidirectional: bool = option(True, "a recurrent encoder reads in both directions (the paper)")
    maxout: int = option(128, "width of the deep output's maxout layer", least=1, most=WIDEST)
    output: Literal["current", "previous"] = option(
        "current", "state that the output reads: s_i (the paper's text) or s_(i-1) (its appendix)"
    )

    @property
    def annotation_size(self) -> int:
        """Return the width of an annotation; a bidirectional encoder's has two halves, [h→; h←]."""
        return 2 * self.size if self.has_recurrent_encoder and self.bidirectional else self.size


@dataclass(frozen=True)
class LuongConfig(EncoderDecoderConfig):
    """Options of `luong`."""

    cell: Cell = option("lstm", "recurrent cell of the decoder, and of the encoder unless `encoder` names another")
    layers: int = option(2, "number of layers of encoder and decoder each", least=1, most=DEEPEST)
    score: Literal["dot", "general", "concat", "location"] = option(
        "general", "how the attention scores a state against an annotation"
    )
    span: Literal["global", "local-m", "local-p"] = option(
        "global", "all annotations, a window that advances by one word per step, or a predicted window"
    )
    radius: int = option(10, "D, half the width of a local window", least=1, most=MAX_POSITIONS)
    length: int = option(200, "number of source positions for the score location", least=1, most=MAX_POSITIONS)
    input_feeding: bool = option(True, "feed the attentional state into the next step")
    reverse: bool = option(False, "read the source backwards")
    bidirectional: bool = option(False, "a recurrent encoder reads in both directions, with half of the width each")

    def known_positions(self) -> int | None:
        """Return how many source positions the score `location` has weights for; None with other scores."""
        return self.length if self.score == "location" else None

    def sees_whole_source(self) -> bool:
        """Return whether attention is global."""
        return self.span == "global"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("bidirectional", "reverse"):
            if getattr(self, key) and not self.has_recurrent_encoder:
                raise ConfigError(
                    key, f'true given with encoder = "{self.encoder}", which reads all words at once: leave it out'
                )
        if self.bidirectional and self.size % 2:
            raise ConfigError("size", f"{self.size} given with bidirectional = true, expected an even width")
        if self.score == "location" and self.span != "global":
            raise ConfigError(
                "span", f'"{self.span}" given with score = "location", which is global only (Luong 2015, 3.2)'
            )


@dataclass(frozen=True)
class BlocksConfig(ModelConfig):
    """The options of kinds that are stacks of blocks."""

    size: int = option(256, "width of the model", least=1, most=WIDEST)
    heads: int = option(4, "number of attention heads", least=1, most=HEADS)
    layers: int = option(3, "number of blocks", least=1, most=DEEPEST)
    hidden: int = option(1024, "width of the feed-forward nets", least=1, most=WIDEST)
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = option(
        "sinusoidal", "kind of position encoding"
    )
    length: int = option(1024, "number of positions with learned embeddings", least=1, most=MAX_POSITIONS)
    norm: Literal["pre", "post", "none"] = option("pre", "layer norm before each sublayer, after its residual, or none")
    residual: bool = option(True, "add each sublayer's input to its output")
    feed_forward: bool = option(True, "have a feed-forward net after the attention in each block")
    activation: Literal["relu", "gelu", "silu"] = option("relu", "activation of the feed-forward nets")
    attention_dropout: float = option(0.0, "dropout on attention weights", least=0, below=1)
    adapter: int = option(
        0,
        "rank of low-rank adapters, trained in place of the weights of attentions and feed-forward nets with --from; "
        "0: none",
        least=0,
        most=WIDEST,
    )

    @classmethod
    def choose(cls, long_lines: bool, joint: bool) -> dict[str, Any]:
        """Choose pre-norm and rotary positions, which learn faster and generalise better than the paper's.

        Rotary positions say nothing in cross-attention, which slows learning on long lines: these get sinusoids.
        """
        return {"positions": "sinusoidal" if long_lines else "rotary", "norm": "pre", "attention_dropout": 0.1}

    def adapter_rank(self) -> int:
        """Return the rank of the adapters (the option `adapter`); 0: none."""
        return self.adapter

    def known_positions(self) -> int | None:
        """Return the number of learned positions; None for other position encodings."""
        return self.length if self.positions == "learned" else None

    def __post_init__(self) -> None:
        check_divisible(self.heads, self.size)
        if self.activation != "relu" and not self.feed_forward:
            raise ConfigError(
                "activation", f"{self.activation} given with feed_forward = false, which has no activations"
            )


@dataclass(frozen=True)
class TransformerConfig(BlocksConfig):
    """Options of `transformer`."""

    layers: int = option(3, "number of blocks of encoder and decoder each", least=1, most=DEEPEST)
    decoder_layers: int | None = option(None, "number of blocks of the decoder, if different", least=1, most=DEEPEST)
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
        most=MAX_POSITIONS,
    )
    norm: Literal["pre", "post", "none"] = option(
        "pre", "layer norm before each sublayer, after its residual (the paper), or none"
    )
    norm_epsilon: float = option(1e-5, "number that layer norms add to a variance", above=0, most=1)
    scale_embeddings: bool = option(True, "multiply embeddings by √size")
    tied: Literal["none", "output", "all"] = option(
        "output",
        "share the target embedding with the output projection; all: with the source embedding, too (joint tokenizer)",
    )
    output_bias: bool = option(True, "have a bias in the output projection")
    fixed_bias: bool = option(False, "leave that bias as it is in training (M2M-100, NLLB)")
    start_as_end: bool = option(False, "read </s> in place of <s> where a target begins (M2M-100, NLLB)")
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
        most=MAX_POSITIONS,
    )

    @classmethod
    def choose(cls, long_lines: bool, joint: bool) -> dict[str, Any]:
        """Tie all embeddings if source and target share a vocabulary."""
        return {**super().choose(long_lines, joint), "tied": "all" if joint else "output"}

    def suitable_rate(self) -> float | None:
        """Return a lower learning rate for a width of 512 or more."""
        return 7e-4 if self.size >= 512 else None

    def ties_both_sides(self) -> bool:
        """Return whether `tied` is "all"."""
        return self.tied == "all"

    def __post_init__(self) -> None:
        super().__post_init__()
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


@dataclass(frozen=True)
class EncoderConfig(BlocksConfig):
    """Options of `encoder`."""

    job: Literal["classify", "language-model"] = option("classify", "text classifier or causal language model")
    pooling: Literal["mean", "attention"] = option("mean", "how a classifier pools all positions into one vector")
    tied: bool = option(True, "share the embedding with the output projection (language model)")

    @property
    def writes(self) -> bool:
        """Return whether the model is a language model, which writes text and has no source, not a classifier."""
        return self.job == "language-model"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.positions == "rotary" and self.size // self.heads % 2:
            raise ConfigError("positions", f"rotary needs heads of an even width, {self.size} / {self.heads} is odd")


@dataclass(frozen=True)
class LSTMNConfig(ModelConfig):
    """Options of `lstmn`."""

    job: Literal["translate", "language-model", "classify"] = option(
        "translate", "encoder-decoder, language model or text classifier"
    )
    size: int = option(256, "width of the hidden and the memory tape", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(256, "width of the attention's hidden layer", least=1, most=WIDEST)
    layers: int = option(1, "number of stacked cells", least=1, most=DEEPEST)
    intra: bool = option(True, "attend to the tapes at every step; false: a plain LSTM, for comparison")
    fusion: Literal["shallow", "deep"] = option(
        "shallow",
        "how the decoder reads the source: beside its state (shallow), or also through a gate into its memory (deep)",
    )

    @property
    def reads_source(self) -> bool:
        """Return whether the model reads a source: every job but language-model."""
        return self.job != "language-model"

    @property
    def writes(self) -> bool:
        """Return whether the model writes text: every job but classify."""
        return self.job != "classify"


@dataclass(frozen=True)
class PointerConfig(ModelConfig):
    """Options of `pointer`."""

    size: int = option(256, "width of the states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(256, "width of the pointing attention", least=1, most=WIDEST)
    bidirectional: bool = option(False, "the encoder reads in both directions, with half of the width each")
    once: bool = option(False, "never point at the same place twice, as in sorting or a tour")

    def __post_init__(self) -> None:
        if self.bidirectional and self.size % 2:
            raise ConfigError("size", f"{self.size} given with bidirectional = true, expected an even width")


@dataclass(frozen=True)
class NTMConfig(ModelConfig):
    """Options of `ntm`."""

    controller: Literal["feedforward", "lstm"] = option(
        "feedforward", "network that reads the input and steers the heads; an lstm can also remember by itself"
    )
    size: int = option(100, "width of the controller", least=1, most=WIDEST)
    embedding: int = option(32, "width of the word embeddings", least=1, most=WIDEST)
    slots: int = option(128, "N, number of memory slots", least=1, most=65_536)
    width: int = option(20, "M, width of a memory slot", least=1, most=WIDEST)
    heads: int = option(1, "number of pairs of one reading and one writing head", least=1, most=64)
    shift: int = option(1, "longest move of a head in one step", least=0, most=1024)
    feed: bool = option(
        False, "feed outputs back as inputs; false: the output depends only on the memory, as in the paper"
    )

    def __post_init__(self) -> None:
        if 2 * self.shift + 1 > self.slots:
            raise ConfigError("shift", f"{self.shift} given with {self.slots} slots, expected less than half of them")


@dataclass(frozen=True)
class CaptionerConfig(ModelConfig):
    """Options of `captioner`."""

    backbone: str = option(
        "resnet", "network that makes the grid: resnet (Regard's own), timm:NAME or torchvision:NAME"
    )
    weights: str | None = option(None, "file with the backbone's weights (.safetensors, or a state_dict .pt)")
    frozen: bool = option(False, "do not train the backbone")
    channels: int = option(
        32, "width of the first stage of Regard's ResNet; each further stage doubles it", least=1, most=4096
    )
    stages: int = option(3, "number of stages of Regard's ResNet; each halves the grid", least=1, most=5)
    blocks: int = option(2, "number of residual blocks per stage", least=1, most=64)
    decoder: Literal["lstm", "transformer"] = option("lstm", "network that writes the caption")
    attention: Literal["soft", "hard", "straight-through", "none"] = option(
        "soft",
        "soft: all places, weighted; hard: one sampled place, learned by REINFORCE; straight-through: one sampled "
        "place, learned with Gumbel noise; none: the mean of the grid",
    )
    size: int = option(256, "width of the decoder's states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(
        256, "width of the attention's hidden layer, or of a Transformer's feed-forward nets", least=1, most=WIDEST
    )
    heads: int = option(4, "number of attention heads of a Transformer", least=1, most=HEADS)
    layers: int = option(1, "number of stacked cells, or of blocks of a Transformer", least=1, most=DEEPEST)
    gate: bool = option(True, "use the gate β, with which the LSTM controls how much the picture counts for a word")
    penalty: float = option(1.0, "λ of the doubly stochastic penalty of soft attention", least=0, most=MAX_WEIGHT)
    entropy: float = option(0.002, "λ_e, weight of hard attention's entropy term", least=0, most=MAX_WEIGHT)
    reinforce: float = option(0.05, "λ_r, weight of hard attention's REINFORCE term", least=0, most=MAX_WEIGHT)
    sampled: float = option(0.5, "share of sentences that use sampled places; the others use the mean", above=0, most=1)
    settle: int = option(
        500,
        "number of batches before sampling starts; over as many more, the share grows to `sampled`",
        least=0,
        most=1_000_000_000,
    )
    tau: float = option(1.0, "τ, temperature of straight-through attention's gradient", above=0, most=MAX_WEIGHT)

    def self_contained(self) -> Self:
        """Return the configuration with Regard's own ResNet in place of another library's backbone."""
        return self if self.backbone == "resnet" else replace(self, backbone="resnet", weights=None, frozen=False)

    def picture_numbers(self, side: int) -> int:
        """Estimate four times the size of the first grid of Regard's own ResNet; 0 for other backbones."""
        return 0 if self.backbone != "resnet" else 4 * (side // 2) ** 2 * self.channels

    def __post_init__(self) -> None:
        if self.backbone != "resnet" and not self.backbone.startswith(("timm:", "torchvision:")):
            raise ConfigError(
                "backbone", f"{show_value(self.backbone)} given, expected resnet, timm:NAME or torchvision:NAME"
            )
        if self.backbone == "resnet" and self.frozen and self.weights is None:
            raise ConfigError("frozen", "true given without weights: the backbone would keep its random weights")
        if self.decoder == "transformer":
            check_divisible(self.heads, self.size)
            if self.attention != "soft":
                raise ConfigError(
                    "attention", f'"{self.attention}" given with decoder = "transformer", expected "soft"'
                )


@dataclass(frozen=True)
class HANConfig(ModelConfig):
    """Options of `han`."""

    cell: Literal["gru", "lstm"] = option("gru", "recurrent cell of both levels")
    size: int = option(50, "width of the states of each direction, for words and for sentences", least=1, most=WIDEST)
    embedding: int = option(200, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(100, "width of the two attentions", least=1, most=WIDEST)
    attention: bool = option(True, "weight words and sentences by attention; false: use `pooling`")
    pooling: Literal["mean", "max"] = option(
        "mean", "pooling without attention: mean of all states, or maximum of each component"
    )
    levels: Literal[1, 2] = option(2, "2: words to sentences to a document; 1: all words of a document at once")

    def __post_init__(self) -> None:
        if self.attention and self.pooling != "mean":
            raise ConfigError("pooling", f'"{self.pooling}" given with attention = true, expected attention = false')


@dataclass(frozen=True)
class ConvNetConfig(ModelConfig):
    """Options of `convnet`."""

    channels: int = option(32, "width of the first stage; each further stage doubles it", least=1, most=4096)
    stages: int = option(3, "number of stages; each halves the grid", least=1, most=5)
    blocks: int = option(1, "number of residual blocks per stage", least=1, most=64)
    attention: bool = option(True, "add a self-attention layer after the stage `after`")
    after: int = option(2, "stage, from 1, after which the self-attention layer comes", least=1, most=5)
    reduction: int = option(
        8, "factor by which the layer reduces its channels for queries, keys and values", least=1, most=WIDEST
    )

    def picture_numbers(self, side: int) -> int:
        """Estimate four times the size of the first grid."""
        return 4 * (side // 2) ** 2 * self.channels

    def __post_init__(self) -> None:
        if self.after > self.stages:
            raise ConfigError("after", f"{self.after} given, but there are {self.stages} stages")
        channels = self.channels * 2 ** (self.after - 1)
        if self.attention and channels % self.reduction:
            raise ConfigError("reduction", f"{channels} channels are not divisible by {self.reduction}")
