"""The options of `rnnsearch`. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.models.config import DEEPEST, WIDEST, Cell, ModelConfig

__all__ = ["RNNSearchConfig"]


@dataclass(frozen=True)
class RNNSearchConfig(ModelConfig):
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
