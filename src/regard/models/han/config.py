"""The options of `han`. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import WIDEST, ModelConfig


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
