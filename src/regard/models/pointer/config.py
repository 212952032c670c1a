"""The options of `pointer`. Imports no torch."""

from dataclasses import dataclass

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import WIDEST, ModelConfig


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
