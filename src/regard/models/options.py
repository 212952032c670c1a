"""The options of each kind: frozen dataclasses that a [model] table is read into.

Nothing here imports torch, so that a wrong configuration is answered at once; the model that options belong to is in
the file of its kind.
"""

from dataclasses import dataclass
from typing import Literal

from regard.config import option, shown
from regard.errors import ConfigError

__all__ = [
    "LSTMN",
    "NTM",
    "RNN",
    "Captioner",
    "Cell",
    "ConvNet",
    "Encoder",
    "HAN",
    "Luong",
    "ModelConfig",
    "Pointer",
    "RNNSearch",
    "Transformer",
]

Cell = Literal["rnn", "gru", "lstm"]
WIDEST = 65_536  # numbers of a vector: a square matrix of them is 16 GiB already
DEEPEST = 256  # layers
HEADS = 1024
LONGEST = 1_048_576  # positions
LARGEST = 1_000_000  # weight of a term of the loss: what is above drowns all others in float32
REACHES = {"window": 8, "convolution": 1}  # how many words on each side are near, where nothing else is said


def divides(heads: int, size: int) -> None:
    if size % heads:
        raise ConfigError("heads", f"{size} is not divisible by {heads}")


@dataclass(frozen=True)
class ModelConfig:
    """What every kind has."""

    dropout: float = option(0.1, "share of numbers set to zero in training", least=0, below=1)


@dataclass(frozen=True)
class RNN(ModelConfig):
    """Options of `rnn`."""

    cell: Cell = option("gru", "rnn (Elman), gru (Cho 2014) or lstm (Sutskever 2014)")
    nonlinearity: Literal["tanh", "relu"] = option("tanh", "of the cell rnn")
    size: int = option(256, "width of the hidden states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    layers: int = option(1, "cells one on the other", least=1, most=DEEPEST)
    start: Literal["zero", "copy", "tanh"] = option(
        "tanh", "the decoder's first state: zero, the encoder's last, or tanh(V h)"
    )
    context: Literal["every", "start"] = option(
        "every",
        "the fixed context goes to cell and readout at every step (Cho), or only into the first state (Sutskever)",
    )
    reverse: bool = option(False, "read the source backwards (Sutskever 2014)")

    def __post_init__(self) -> None:
        if self.context == "start" and self.start == "zero":
            raise ConfigError("start", 'zero given with context = "start": the decoder would see nothing of the source')


@dataclass(frozen=True)
class RNNSearch(ModelConfig):
    """Options of `rnnsearch`."""

    cell: Cell = option("gru", "of encoder and decoder")
    nonlinearity: Literal["tanh", "relu"] = option("tanh", "of the cell rnn")
    size: int = option(256, "width of each direction's and the decoder's states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(256, "width of the alignment model", least=1, most=WIDEST)
    layers: int = option(1, "bidirectional layers of the encoder", least=1, most=DEEPEST)
    maxout: int = option(128, "width of the deep output's maxout layer", least=1, most=WIDEST)
    output: Literal["current", "previous"] = option(
        "current", "the output reads s_i (the paper's text) or s_(i-1) (its appendix)"
    )


@dataclass(frozen=True)
class Luong(ModelConfig):
    """Options of `luong`."""

    cell: Literal["gru", "lstm"] = option("lstm", "of encoder and decoder")
    size: int = option(256, "width of the states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    layers: int = option(2, "cells one on the other", least=1, most=DEEPEST)
    score: Literal["dot", "general", "concat", "location"] = option(
        "general", "how a state and an annotation are compared"
    )
    span: Literal["global", "local-m", "local-p"] = option(
        "global", "all annotations, a window that moves on, or one that is predicted"
    )
    radius: int = option(10, "D, half of a local window", least=1, most=LONGEST)
    length: int = option(200, "positions that the score location knows", least=1, most=LONGEST)
    input_feeding: bool = option(True, "the attentional state goes into the next step's input")
    reverse: bool = option(False, "read the source backwards")
    bidirectional: bool = option(False, "the encoder reads from both ends, with half of the width each")

    def __post_init__(self) -> None:
        if self.bidirectional and self.size % 2:
            raise ConfigError("size", f"{self.size} given with bidirectional = true, expected an even width")
        if self.score == "location" and self.span != "global":
            raise ConfigError(
                "span", f'"{self.span}" given with score = "location", which is global only (Luong 2015, 3.2)'
            )


@dataclass(frozen=True)
class Transformer(ModelConfig):
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
    norm: Literal["pre", "post"] = option("pre", "layer norm before each part, or after its residual (the paper)")
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

    def __post_init__(self) -> None:
        divides(self.heads, self.size)
        if self.mixing == "recurrence" and self.size % 2:
            raise ConfigError("size", f'{self.size} given with mixing = "recurrence", expected an even width')
        if self.reach is not None and self.mixing not in REACHES:
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


@dataclass(frozen=True)
class Encoder(ModelConfig):
    """Options of `encoder`."""

    job: Literal["classify", "language-model"] = option("classify", "a text classifier, or a causal language model")
    size: int = option(256, "width of the model", least=1, most=WIDEST)
    heads: int = option(4, "attention heads", least=1, most=HEADS)
    layers: int = option(3, "blocks", least=1, most=DEEPEST)
    hidden: int = option(1024, "width of the feed-forward nets", least=1, most=WIDEST)
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = option("sinusoidal", "how order is told")
    length: int = option(1024, "positions that learned ones know", least=1, most=LONGEST)
    norm: Literal["pre", "post"] = option("pre", "layer norm before each part, or after its residual")
    pooling: Literal["mean", "attention"] = option("mean", "how a classifier makes one vector of many")
    tied: bool = option(True, "a language model's output projection is its embedding")
    attention_dropout: float = option(0.0, "dropout on attention weights", least=0, below=1)

    def __post_init__(self) -> None:
        divides(self.heads, self.size)
        if self.positions == "rotary" and self.size // self.heads % 2:
            raise ConfigError("positions", f"rotary needs heads of an even width, {self.size} / {self.heads} is odd")


@dataclass(frozen=True)
class LSTMN(ModelConfig):
    """Options of `lstmn`."""

    job: Literal["translate", "language-model", "classify"] = option(
        "translate", "an encoder-decoder, a language model or a text classifier"
    )
    size: int = option(256, "width of the hidden and the memory tape", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(256, "width of the attention's hidden layer", least=1, most=WIDEST)
    layers: int = option(1, "cells one on the other", least=1, most=DEEPEST)
    intra: bool = option(True, "look back at the tapes at every step; false: a plain LSTM, to compare with")
    fusion: Literal["shallow", "deep"] = option(
        "shallow", "a decoder reads the source beside its state (shallow), or into its memory by a gate, too (deep)"
    )


@dataclass(frozen=True)
class Pointer(ModelConfig):
    """Options of `pointer`."""

    size: int = option(256, "width of the states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(256, "width of the pointing attention", least=1, most=WIDEST)
    bidirectional: bool = option(False, "the encoder reads from both ends, with half of the width each")
    once: bool = option(False, "no place is pointed at twice, as in sorting or a tour")

    def __post_init__(self) -> None:
        if self.bidirectional and self.size % 2:
            raise ConfigError("size", f"{self.size} given with bidirectional = true, expected an even width")


@dataclass(frozen=True)
class NTM(ModelConfig):
    """Options of `ntm`."""

    controller: Literal["feedforward", "lstm"] = option(
        "feedforward", "what reads the input and steers the heads; an lstm may remember past the memory"
    )
    size: int = option(100, "width of the controller", least=1, most=WIDEST)
    embedding: int = option(32, "width of the word embeddings", least=1, most=WIDEST)
    slots: int = option(128, "N, the places of the memory", least=1, most=65_536)
    width: int = option(20, "M, the numbers a place holds", least=1, most=WIDEST)
    heads: int = option(1, "pairs of a reading and a writing head", least=1, most=64)
    shift: int = option(1, "the furthest that a head moves in a step", least=0, most=1024)
    feed: bool = option(
        False, "the outputs so far are read on; false: only the memory says what comes, as in the paper"
    )

    def __post_init__(self) -> None:
        if 2 * self.shift + 1 > self.slots:
            raise ConfigError("shift", f"{self.shift} given with {self.slots} slots, expected less than half of them")


@dataclass(frozen=True)
class Captioner(ModelConfig):
    """Options of `captioner`."""

    backbone: str = option("resnet", "what makes the grid: resnet, the own one, or timm:NAME, or torchvision:NAME")
    weights: str | None = option(None, "a file with the backbone's weights (.safetensors, or a state_dict .pt)")
    frozen: bool = option(False, "the backbone is not trained")
    channels: int = option(
        32, "width of the own ResNet's first stage; each further stage doubles it", least=1, most=4096
    )
    stages: int = option(3, "stages of the own ResNet; each halves the grid", least=1, most=5)
    blocks: int = option(2, "residual blocks of a stage", least=1, most=64)
    decoder: Literal["lstm", "transformer"] = option("lstm", "what writes the words")
    attention: Literal["soft", "hard", "straight-through", "none"] = option(
        "soft",
        "all places weighed, one place drawn, learnt by REINFORCE or straight through, or none: the mean of the grid",
    )
    size: int = option(256, "width of the decoder's states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(
        256, "width of the attention's hidden layer; of a Transformer's feed-forward nets", least=1, most=WIDEST
    )
    heads: int = option(4, "attention heads of a Transformer", least=1, most=HEADS)
    layers: int = option(1, "cells, or blocks of a Transformer, one on the other", least=1, most=DEEPEST)
    gate: bool = option(True, "the gate β, by which the LSTM says how much the picture counts for a word")
    penalty: float = option(1.0, "λ of the doubly stochastic penalty of soft attention", least=0, most=LARGEST)
    entropy: float = option(0.002, "λ_e, the weight of hard attention's entropy", least=0, most=LARGEST)
    reinforce: float = option(0.05, "λ_r, the weight of hard attention's REINFORCE term", least=0, most=LARGEST)
    sampled: float = option(
        0.5, "the share of sentences whose places are drawn; the others take the mean", above=0, most=1
    )
    settle: int = option(
        500,
        "batches before any place is drawn; the share grows to `sampled` in as many more",
        least=0,
        most=1_000_000_000,
    )
    tau: float = option(1.0, "τ, the temperature of straight-through attention's gradient", above=0, most=LARGEST)

    def __post_init__(self) -> None:
        if self.backbone != "resnet" and not self.backbone.startswith(("timm:", "torchvision:")):
            raise ConfigError(
                "backbone", f"{shown(self.backbone)} given, expected resnet, timm:NAME or torchvision:NAME"
            )
        if self.backbone == "resnet" and self.frozen and self.weights is None:
            raise ConfigError("frozen", "true given without weights: the backbone would stay as it was drawn")
        if self.decoder == "transformer":
            divides(self.heads, self.size)
            if self.attention != "soft":
                raise ConfigError(
                    "attention", f'"{self.attention}" given with decoder = "transformer", expected "soft"'
                )


@dataclass(frozen=True)
class HAN(ModelConfig):
    """Options of `han`."""

    cell: Literal["gru", "lstm"] = option("gru", "of both levels")
    size: int = option(50, "width of each direction's states, of words and of sentences", least=1, most=WIDEST)
    embedding: int = option(200, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(100, "width of the two attentions", least=1, most=WIDEST)
    attention: bool = option(True, "weigh words and sentences; false: as `pooling` says")
    pooling: Literal["mean", "max"] = option(
        "mean", "without attention: the mean of all states, or the largest of each of their numbers"
    )
    levels: Literal[1, 2] = option(2, "words to sentences to a document; 1: all words of a document at once")

    def __post_init__(self) -> None:
        if self.attention and self.pooling != "mean":
            raise ConfigError("pooling", f'"{self.pooling}" given with attention = true, expected attention = false')


@dataclass(frozen=True)
class ConvNet(ModelConfig):
    """Options of `convnet`."""

    channels: int = option(32, "width of the first stage; each further stage doubles it", least=1, most=4096)
    stages: int = option(3, "stages; each halves the grid", least=1, most=5)
    blocks: int = option(1, "residual blocks of a stage", least=1, most=64)
    attention: bool = option(True, "the self-attention layer after the stage `after`")
    after: int = option(2, "the stage, from 1, whose grid the self-attention layer sees", least=1, most=5)
    reduction: int = option(
        8, "the layer's channels are divided by so many for queries, keys and values", least=1, most=WIDEST
    )

    def __post_init__(self) -> None:
        if self.after > self.stages:
            raise ConfigError("after", f"{self.after} given, but there are {self.stages} stages")
        channels = self.channels * 2 ** (self.after - 1)
        if self.attention and channels % self.reduction:
            raise ConfigError("reduction", f"{channels} channels are not divisible by {self.reduction}")
