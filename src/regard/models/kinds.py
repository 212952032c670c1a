"""The table of kinds: what each model is, its paper, its options and its presets.

Nothing here imports torch, so that a wrong configuration is answered at once; the class that a configuration belongs to
is in the file of its kind.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from regard.config import option, parse, suggestion
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.models.contract import Model

__all__ = ["KINDS", "Kind", "ModelConfig", "build", "kind_of", "model_config"]

Cell = Literal["rnn", "gru", "lstm"]


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
    size: int = option(256, "width of the hidden states", least=1)
    embedding: int = option(256, "width of the word embeddings", least=1)
    layers: int = option(1, "cells one on the other", least=1)
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
    size: int = option(256, "width of each direction's and the decoder's states", least=1)
    embedding: int = option(256, "width of the word embeddings", least=1)
    hidden: int = option(256, "width of the alignment model", least=1)
    layers: int = option(1, "bidirectional layers of the encoder", least=1)
    maxout: int = option(128, "width of the deep output's maxout layer", least=1)
    output: Literal["current", "previous"] = option(
        "current", "the output reads s_i (the paper's text) or s_(i-1) (its appendix)"
    )


@dataclass(frozen=True)
class Luong(ModelConfig):
    """Options of `luong`."""

    cell: Literal["gru", "lstm"] = option("lstm", "of encoder and decoder")
    size: int = option(256, "width of the states", least=1)
    embedding: int = option(256, "width of the word embeddings", least=1)
    layers: int = option(2, "cells one on the other", least=1)
    score: Literal["dot", "general", "concat", "location"] = option(
        "general", "how a state and an annotation are compared"
    )
    span: Literal["global", "local-m", "local-p"] = option(
        "global", "all annotations, a window that moves on, or one that is predicted"
    )
    radius: int = option(10, "D, half of a local window", least=1)
    length: int = option(200, "positions that the score location knows", least=1)
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

    size: int = option(256, "width of the model", least=1)
    heads: int = option(4, "attention heads", least=1)
    layers: int = option(3, "blocks of the encoder, and of the decoder", least=1)
    decoder_layers: int | None = option(None, "blocks of the decoder, where they are not as many", least=1)
    hidden: int = option(1024, "width of the feed-forward nets", least=1)
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = option("sinusoidal", "how order is told")
    join: Literal["add", "concatenate"] = option("add", "how sinusoidal and learned positions meet the embeddings")
    length: int = option(1024, "positions that learned ones know", least=1)
    norm: Literal["pre", "post"] = option("pre", "layer norm before each part, or after its residual (the paper)")
    tied: Literal["none", "output", "all"] = option(
        "output", "the output projection is the target's embedding; all: the source's too (needs a joint tokenizer)"
    )
    attention_dropout: float = option(0.0, "dropout on attention weights", least=0, below=1)

    def __post_init__(self) -> None:
        divides(self.heads, self.size)
        if self.positions == "rotary" and self.size // self.heads % 2:
            raise ConfigError("positions", f"rotary needs heads of an even width, {self.size} / {self.heads} is odd")
        if self.join == "concatenate" and self.positions not in ("sinusoidal", "learned"):
            raise ConfigError(
                "join", f'concatenate given with positions = "{self.positions}", which are not vectors to be joined'
            )


@dataclass(frozen=True)
class Encoder(ModelConfig):
    """Options of `encoder`."""

    job: Literal["classify", "language-model"] = option("classify", "a text classifier, or a causal language model")
    size: int = option(256, "width of the model", least=1)
    heads: int = option(4, "attention heads", least=1)
    layers: int = option(3, "blocks", least=1)
    hidden: int = option(1024, "width of the feed-forward nets", least=1)
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = option("sinusoidal", "how order is told")
    length: int = option(1024, "positions that learned ones know", least=1)
    norm: Literal["pre", "post"] = option("pre", "layer norm before each part, or after its residual")
    pooling: Literal["mean", "attention"] = option("mean", "how a classifier makes one vector of many")
    tied: bool = option(True, "a language model's output projection is its embedding")
    attention_dropout: float = option(0.0, "dropout on attention weights", least=0, below=1)

    def __post_init__(self) -> None:
        divides(self.heads, self.size)
        if self.positions == "rotary" and self.size // self.heads % 2:
            raise ConfigError("positions", f"rotary needs heads of an even width, {self.size} / {self.heads} is odd")


@dataclass(frozen=True)
class Kind:
    """A line of the table."""

    name: str
    paper: str
    what: str
    config: type[ModelConfig]
    file: str  # module and class
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def widths(size: int, **others: Any) -> dict[str, Any]:
    return {"size": size, "embedding": size, **others}


STACK: dict[str, dict[str, Any]] = {
    "tiny": {"size": 128, "heads": 4, "layers": 2, "hidden": 512},
    "small": {"size": 256, "heads": 4, "layers": 3, "hidden": 1024},
    "base": {"size": 512, "heads": 8, "layers": 6, "hidden": 2048, "dropout": 0.1},
    "big": {"size": 1024, "heads": 16, "layers": 6, "hidden": 4096, "dropout": 0.3},
}

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in [
        Kind(
            "rnn",
            "Cho 2014, Sutskever 2014",
            "recurrent encoder-decoder with a fixed context",
            RNN,
            "regard.models.rnn.RNNModel",
            {
                "tiny": widths(128),
                "small": widths(256),
                "base": widths(512, layers=2, dropout=0.2),
                "big": widths(1000, layers=4, cell="lstm", context="start", start="copy", reverse=True, dropout=0.2),
            },
        ),
        Kind(
            "rnnsearch",
            "Bahdanau 2015",
            "bidirectional annotations and additive attention",
            RNNSearch,
            "regard.models.rnnsearch.RNNSearchModel",
            {
                "tiny": widths(128, hidden=128, maxout=64),
                "small": widths(256, hidden=256, maxout=128),
                "base": widths(512, hidden=512, maxout=256, dropout=0.2),
                "big": {"size": 1000, "embedding": 620, "hidden": 1000, "maxout": 500, "dropout": 0.2},
            },
        ),
        Kind(
            "luong",
            "Luong 2015",
            "stacked LSTM, attention after the state, input feeding; global and local",
            Luong,
            "regard.models.luong.LuongModel",
            {
                "tiny": widths(128, layers=1),
                "small": widths(256, layers=2),
                "base": widths(512, layers=2, dropout=0.2),
                "big": widths(1000, layers=4, dropout=0.2),
            },
        ),
        Kind(
            "transformer",
            "Vaswani 2017",
            "attention alone: multi-head, masked, with positions",
            Transformer,
            "regard.models.transformer.TransformerModel",
            {
                **STACK,
                "base": {**STACK["base"], "norm": "post"},
                "big": {**STACK["big"], "norm": "post"},
            },
        ),
        Kind(
            "encoder",
            "after Vaswani 2017",
            "a stack of blocks as a text classifier, or causal as a language model",
            Encoder,
            "regard.models.encoder.EncoderModel",
            STACK,
        ),
    ]
}


def kind_of(table: Mapping[str, Any], path: str = "model") -> Kind:
    """The kind that a [model] table names."""
    name = table.get("kind", "transformer")
    if not isinstance(name, str) or name not in KINDS:
        raise ConfigError(f"{path}.kind", f"{name!r} given, no such kind{suggestion(str(name), KINDS)}")
    return KINDS[name]


def model_config(table: Mapping[str, Any], path: str = "model") -> ModelConfig:
    """The options of a [model] table: those of its preset, and over them its own."""
    kind = kind_of(table, path)
    own = {key: value for key, value in table.items() if key not in ("kind", "preset")}
    preset = table.get("preset")
    if preset is not None and (not isinstance(preset, str) or preset not in kind.presets):
        raise ConfigError(f"{path}.preset", f"{preset!r} given, no such preset{suggestion(str(preset), kind.presets)}")
    return parse(kind.config, {**(kind.presets[preset] if preset else {}), **own}, path)


def build(kind: str, config: ModelConfig, source: int, target: int) -> "Model":
    """A new model: `source` and `target` are the sizes of its vocabularies (a classifier's target: its labels)."""
    module, name = KINDS[kind].file.rsplit(".", 1)
    model: Model = getattr(importlib.import_module(module), name)(config, source, target)
    return model
