"""The table of kinds: each model's paper, summary, tasks, options and presets. Imports no torch.

A kind's row holds everything that other code needs before the model is built; the contract defines the rest. Other code
names a kind only as a task's default or as the result of an import.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from regard.config import parse, plain
from regard.errors import ConfigError
from regard.messages import no_such
from regard.models.config import (
    CaptionerConfig,
    ConvNetConfig,
    EncoderConfig,
    HANConfig,
    LSTMNConfig,
    LuongConfig,
    ModelConfig,
    NTMConfig,
    PointerConfig,
    RNNConfig,
    RNNSearchConfig,
    TransformerConfig,
)
from regard.plugins import register, renamed_fields, resolve, table

if TYPE_CHECKING:
    from regard.models.contract import Model

__all__ = ["DEFAULT", "KINDS", "Kind", "Title", "build", "complete_table", "find_kind", "read_model_config"]

DEFAULT = "transformer"  # the kind if a [model] table names none


@dataclass(frozen=True)
class Title:
    """A title for an attention, and the sides that its queries (rows) and keys (columns) belong to."""

    text: str
    role: Literal["cross", "encoder", "decoder", "words", "sentences", "places", "memory"]
    rows: str
    columns: str


@renamed_fields(what="summary", file="model_class")
@dataclass(frozen=True)
class Kind:
    """A row of the table of kinds."""

    name: str
    paper: str
    summary: str  # one line for help texts and lists
    config: type[ModelConfig]
    model_class: str  # the dotted name of the class, or the class itself
    tasks: tuple[str, ...] = ("translate",)  # the tasks that it can be trained for; the first is the default
    reads: Literal["text", "documents", "pictures"] = "text"
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shares_vocabulary: bool = False  # it writes tokens of its source, so that both sides need one vocabulary
    reads_end: bool = False  # it reads the END of its source, as a position to attend to
    # Titles of attentions, by dotted name; other attentions have the usual titles.
    titles: Mapping[str, Title] = field(default_factory=dict)


def widths(size: int, **others: Any) -> dict[str, Any]:
    """Return a preset with the same width for states and embeddings."""
    return {"size": size, "embedding": size, **others}


POOLED = {"pooling": Title("the document, to its words", "words", "document", "source")}

STACK: dict[str, dict[str, Any]] = {
    "tiny": {"size": 128, "heads": 4, "layers": 2, "hidden": 512},
    "small": {"size": 256, "heads": 4, "layers": 3, "hidden": 1024},
    "base": {"size": 512, "heads": 8, "layers": 6, "hidden": 2048, "dropout": 0.1},
    "big": {"size": 1024, "heads": 16, "layers": 6, "hidden": 4096, "dropout": 0.3},
}

KINDS: MutableMapping[str, Kind] = table("kind")
for row in [
    Kind(
        "rnn",
        "Cho 2014, Sutskever 2014",
        "recurrent encoder-decoder with a fixed context",
        RNNConfig,
        "regard.models.rnn.RNNModel",
        presets={
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
        RNNSearchConfig,
        "regard.models.rnnsearch.RNNSearchModel",
        presets={
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
        LuongConfig,
        "regard.models.luong.LuongModel",
        presets={
            "tiny": widths(128, layers=1),
            "small": widths(256, layers=2),
            "base": widths(512, layers=2, dropout=0.2),
            "big": widths(1000, layers=4, dropout=0.2),
        },
    ),
    Kind(
        "transformer",
        "Vaswani 2017",
        "only attention: multi-head, masked, with positions",
        TransformerConfig,
        "regard.models.transformer.TransformerModel",
        presets={
            **STACK,
            "base": {**STACK["base"], "norm": "post"},
            "big": {**STACK["big"], "norm": "post"},
        },
    ),
    Kind(
        "encoder",
        "after Vaswani 2017",
        "a stack of blocks as a text classifier, or causal as a language model",
        EncoderConfig,
        "regard.models.encoder.EncoderModel",
        ("classify", "language-model"),
        presets=STACK,
        titles=POOLED,
    ),
    Kind(
        "lstmn",
        "Cheng 2016",
        "an LSTM that attends to all its earlier states; translates, writes or classifies",
        LSTMNConfig,
        "regard.models.lstmn.LSTMNModel",
        ("translate", "language-model", "classify"),
        presets={
            "tiny": widths(128, hidden=128),
            "small": widths(256, hidden=256),
            "base": widths(512, hidden=512, dropout=0.2),
            "big": widths(1000, hidden=1000, layers=2, dropout=0.2),
        },
    ),
    Kind(
        "pointer",
        "Vinyals 2015",
        "each output is a place of the source: attention is the output",
        PointerConfig,
        "regard.models.pointer.PointerModel",
        presets={
            "tiny": widths(128, hidden=128),
            "small": widths(256, hidden=256),
            "base": widths(512, hidden=512),
        },
        shares_vocabulary=True,
        reads_end=True,
        titles={"attention": Title("decoder, pointing at the source", "cross", "written", "source")},
    ),
    Kind(
        "ntm",
        "Graves 2014",
        "a controller with heads that read and write a memory of places",
        NTMConfig,
        "regard.models.ntm.NTMModel",
        presets={
            "tiny": {"size": 100, "slots": 32, "width": 20},
            "small": {"size": 100, "slots": 128, "width": 20},
            "base": {"size": 200, "slots": 128, "width": 40, "heads": 2},
        },
        reads_end=True,
    ),
    Kind(
        "captioner",
        "Xu 2015",
        "pictures to sentences: a grid of features, soft or hard attention",
        CaptionerConfig,
        "regard.models.captioner.CaptionerModel",
        ("caption",),
        "pictures",
        {
            "tiny": widths(128, hidden=128, channels=16, stages=3, blocks=1),
            "small": widths(256, hidden=256, channels=32, stages=3, blocks=2),
            "base": widths(512, hidden=512, channels=64, stages=4, blocks=2, dropout=0.3),
        },
    ),
    Kind(
        "han",
        "Yang 2016",
        "words to sentences to documents, each level weighted by attention",
        HANConfig,
        "regard.models.han.HANModel",
        ("classify",),
        "documents",
        {
            "tiny": {"size": 32, "embedding": 64, "hidden": 64},
            "small": {"size": 50, "embedding": 200, "hidden": 100},
            "base": {"size": 100, "embedding": 300, "hidden": 200, "dropout": 0.3},
        },
        titles={
            "words": Title("words of each sentence", "words", "document", "source"),
            "sentences": Title("sentences of the document", "sentences", "document", "sentences"),
            **POOLED,
        },
    ),
    Kind(
        "convnet",
        "Zhang 2018",
        "an image classifier with self-attention over its grid",
        ConvNetConfig,
        "regard.models.convnet.ConvNetModel",
        ("classify",),
        "pictures",
        {
            "tiny": {"channels": 16, "stages": 3, "blocks": 1},
            "small": {"channels": 32, "stages": 3, "blocks": 2},
            "base": {"channels": 64, "stages": 4, "blocks": 2},
        },
        titles={"attention": Title("every place, to all places", "places", "places", "places")},
    ),
]:
    register(kind=row)


def find_kind(table: Mapping[str, Any], path: str = "model") -> Kind:
    """Return the kind that a [model] table names."""
    name = DEFAULT if table.get("kind") is None else table["kind"]
    if not isinstance(name, str) or name not in KINDS:
        raise ConfigError(f"{path}.kind", no_such("kind", name, KINDS))
    return KINDS[name]


def read_model_config(table: Mapping[str, Any], path: str = "model") -> ModelConfig:
    """Read the options of a [model] table, which override those of its preset."""
    kind = find_kind(table, path)
    own = {key: value for key, value in table.items() if key not in ("kind", "preset")}
    preset = table.get("preset")
    if preset is not None and (not isinstance(preset, str) or preset not in kind.presets):
        raise ConfigError(f"{path}.preset", no_such("preset", preset, kind.presets))
    return parse(kind.config, {**(kind.presets[preset] if preset else {}), **own}, path)


def complete_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of all options that a [model] table lacks, as in an older run."""
    return {"kind": find_kind(table).name, **plain(read_model_config(table))}


def build(kind: str, config: ModelConfig, source: int, target: int) -> "Model":
    """Build a new model; `source` and `target` are the sizes of its vocabularies.

    For a classifier `target` is the number of labels. For a model that reads pictures `source` is 0.
    """
    model: Model = resolve(KINDS[kind].model_class)(config, source, target)
    return model
