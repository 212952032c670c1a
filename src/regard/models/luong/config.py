"""The options of `luong`. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import DEEPEST, LONGEST, Cell, EncoderDecoderConfig


@dataclass(frozen=True)
class LuongConfig(EncoderDecoderConfig):
    """Options of `luong`."""

    cell: Cell = option("lstm", "recurrent cell of the decoder, and of the encoder unless `encoder` names another")
    layers: int = option(2, "number of layers of encoder and decoder each", least=1, most=DEEPEST)
    score: Literal["dot", "general", "concat", "location"] = option(
        "general", "how the attention scores a state against an annotation"
    )
    span: Literal["global", "local-m", "local-p"] = option(
        "global", "all annotations, a window that advances by one word per step, or a predicted window"
    )
    radius: int = option(10, "D, half the width of a local window", least=1, most=LONGEST)
    length: int = option(200, "number of source positions for the score location", least=1, most=LONGEST)
    input_feeding: bool = option(True, "feed the attentional state into the next step")
    reverse: bool = option(False, "read the source backwards")
    bidirectional: bool = option(False, "a recurrent encoder reads in both directions, with half of the width each")

    def known_positions(self) -> int | None:
        """Return how many source positions the score `location` has weights for; None: any number."""
        return self.length if self.score == "location" else None

    def sees_whole_source(self) -> bool:
        """Return whether attention is global."""
        return self.span == "global"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("bidirectional", "reverse"):
            if getattr(self, key) and not self.has_recurrent_encoder:
                raise ConfigError(
                    key, f'true given with encoder = "{self.encoder}", which reads all words at once: leave it out'
                )
        if self.bidirectional and self.size % 2:
            raise ConfigError("size", f"{self.size} given with bidirectional = true, expected an even width")
        if self.score == "location" and self.span != "global":
            raise ConfigError(
                "span", f'"{self.span}" given with score = "location", which is global only (Luong 2015, 3.2)'
            )
