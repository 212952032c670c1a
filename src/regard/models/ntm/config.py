"""The options of `ntm`. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import WIDEST, ModelConfig


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
