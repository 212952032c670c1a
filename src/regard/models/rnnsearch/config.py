"""The options of `rnnsearch`. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.models.config import DEEPEST, WIDEST, EncoderDecoderConfig


@dataclass(frozen=True)
class RNNSearchConfig(EncoderDecoderConfig):
    """Options of `rnnsearch`."""

    size: int = option(256, "width of the states of each direction and of the decoder", least=1, most=WIDEST)
    hidden: int = option(256, "width of the alignment model", least=1, most=WIDEST)
    bidirectional: bool = option(True, "a recurrent encoder reads in both directions (the paper)")
    layers: int = option(1, "number of layers of the encoder", least=1, most=DEEPEST)
    maxout: int = option(128, "width of the deep output's maxout layer", least=1, most=WIDEST)
    output: Literal["current", "previous"] = option(
        "current", "state that the output reads: s_i (the paper's text) or s_(i-1) (its appendix)"
    )

    @property
    def annotation_size(self) -> int:
        """Return the width of an annotation; a recurrence from both ends has two halves, [h→; h←]."""
        return 2 * self.size if self.has_recurrent_encoder and self.bidirectional else self.size
