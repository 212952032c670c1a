"""The options of `rnn`. Imports no torch."""

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import DEEPEST, WIDEST, Cell, ModelConfig


@dataclass(frozen=True)
class RNNConfig(ModelConfig):
    """Options of `rnn`."""

    cell: Cell = option("gru", "rnn (Elman), gru (Cho 2014) or lstm (Sutskever 2014)")
    nonlinearity: Literal["tanh", "relu"] = option("tanh", "nonlinearity of the cell rnn")
    size: int = option(256, "width of the hidden states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    layers: int = option(1, "number of stacked cells", least=1, most=DEEPEST)
    start: Literal["zero", "copy", "tanh"] = option(
        "tanh", "first state of the decoder: zero, the encoder's last, or tanh(V h)"
    )
    context: Literal["every", "start"] = option(
        "every",
        "where the context vector goes: cell and readout at every step (Cho), or only the first state (Sutskever)",
    )
    reverse: bool = option(False, "read the source backwards (Sutskever 2014)")

    def __post_init__(self) -> None:
        if self.context == "start" and self.start == "zero":
            raise ConfigError("start", 'zero given with context = "start": the decoder would see nothing of the source')
