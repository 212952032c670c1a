"""The options of `ntm`. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import WIDEST, ModelConfig

__all__ = ["NTMConfig"]


@dataclass(frozen=True)
class NTMConfig(ModelConfig):
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
