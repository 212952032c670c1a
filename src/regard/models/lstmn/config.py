"""The options of `lstmn`. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.models.config import DEEPEST, WIDEST, ModelConfig


@dataclass(frozen=True)
class LSTMNConfig(ModelConfig):
    """Options of `lstmn`."""

    job: Literal["translate", "language-model", "classify"] = option(
        "translate", "encoder-decoder, language model or text classifier"
    )
    size: int = option(256, "width of the hidden and the memory tape", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(256, "width of the attention's hidden layer", least=1, most=WIDEST)
    layers: int = option(1, "number of stacked cells", least=1, most=DEEPEST)
    intra: bool = option(True, "attend to the tapes at every step; false: a plain LSTM, for comparison")
    fusion: Literal["shallow", "deep"] = option(
        "shallow",
        "how the decoder reads the source: beside its state (shallow), or also through a gate into its memory (deep)",
    )

    @property
    def reads_source(self) -> bool:
        """Return whether the model reads a source: a language model has none."""
        return self.job != "language-model"

    @property
    def writes(self) -> bool:
        """Return whether the model writes text instead of naming a label."""
        return self.job != "classify"
