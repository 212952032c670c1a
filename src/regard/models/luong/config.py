"""The options of `luong`. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import DEEPEST, LONGEST, WIDEST, ModelConfig

__all__ = ["LuongConfig"]


@dataclass(frozen=True)
class LuongConfig(ModelConfig):
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

    def known_positions(self) -> int | None:
        """Those that the score location knows."""
        return self.length if self.score == "location" else None

    def sees_whole_source(self) -> bool:
        """Whether attention is global."""
        return self.span == "global"

    def __post_init__(self) -> None:
        if self.bidirectional and self.size % 2:
            raise ConfigError("size", f"{self.size} given with bidirectional = true, expected an even width")
        if self.score == "location" and self.span != "global":
            raise ConfigError(
                "span", f'"{self.span}" given with score = "location", which is global only (Luong 2015, 3.2)'
            )
