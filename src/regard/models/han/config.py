"""The options of `han`. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import WIDEST, ModelConfig

__all__ = ["HANConfig"]


@dataclass(frozen=True)
class HANConfig(ModelConfig):
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
