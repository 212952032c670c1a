"""The parts that all configurations share: `ModelConfig`, and the limits of its options. Imports no torch.

The configuration of a kind stands in its folder.
"""

from dataclasses import dataclass
from typing import Any, Literal, Self

from regard.config import option
from regard.errors import ConfigError

__all__ = ["Cell", "EncoderDecoderConfig", "ModelConfig"]

Cell = Literal["rnn", "gru", "lstm"]
WIDEST = 65_536  # numbers of a vector: a square matrix of them is 16 GiB already
DEEPEST = 256  # layers
HEADS = 1024
LONGEST = 1_048_576  # positions
LARGEST = 1_000_000  # weight of a term of the loss: what is above drowns all others in float32


def check_divisible(heads: int, size: int) -> None:
    if size % heads:
        raise ConfigError("heads", f"{size} is not divisible by {heads}")


def check_activation(activation: str, feed_forward: bool) -> None:
    if activation != "relu" and not feed_forward:
        raise ConfigError("activation", f"{activation} given with feed_forward = false, which has no activations")


@dataclass(frozen=True)
class ModelConfig:
    """The options that every kind has, and the questions that any configuration answers."""

    dropout: float = option(0.1, "dropout: share of activations set to zero in training", least=0, below=1)

    @classmethod
    def choose(cls, long_lines: bool, joint: bool) -> dict[str, Any]:
        """Choose options, beside preset and dropout, that suit a corpus of text, where the user names none.

        `long_lines`: its targets are long on average; `joint`: source and target have one vocabulary.
        """
        return {}

    def suitable_rate(self) -> float | None:
        """Return the learning rate that suits this model, where it is not the usual one."""
        return None

    def adapter_rank(self) -> int:
        """Return the rank of the adapters that are trained in place of the weights (the option `adapter`); 0: none."""
        return 0

    def known_positions(self) -> int | None:
        """Return how many positions of a sentence the model can tell apart (its option `length`); None: any number."""
        return None

    def sees_whole_source(self) -> bool:
        """Return whether a word may look at its whole source rather than at a window (the option `span`)."""
        return True

    def ties_both_sides(self) -> bool:
        """Return whether source and target share one table of embeddings (the option `tied`) and so a vocabulary."""
        return False

    def picture_numbers(self, side: int) -> int:
        """Return how many numbers the backward pass of `side` × `side` pixels needs at least; 0: not known."""
        return 0

    def self_contained(self) -> Self:
        """Return the configuration with Regard's own parts alone, whose weights are counted without other libraries."""
        return self


@dataclass(frozen=True)
class EncoderDecoderConfig(ModelConfig):
    """The options of kinds whose recurrent decoder attends to an encoder of any sort."""

    cell: Cell = option("gru", "recurrent cell of the decoder, and of the encoder unless `encoder` names another")
    nonlinearity: Literal["tanh", "relu"] = option("tanh", "nonlinearity of the cell rnn")
    size: int = option(256, "width of the states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    layers: int = option(1, "number of layers of the encoder", least=1, most=DEEPEST)
    encoder: Literal["rnn", "gru", "lstm", "convolution", "self-attention"] | None = option(
        None, "network that reads the source: a cell, gated convolutions or self-attention; default: the decoder's cell"
    )
    bidirectional: bool = option(False, "a recurrent encoder reads in both directions")
    heads: int = option(4, "number of heads of a self-attention encoder", least=1, most=HEADS)
    reach: int | None = option(
        None,
        "number of neighbours on each side in a convolutional encoder; default: 1 (a kernel of three)",
        least=1,
        most=LONGEST,
    )

    @property
    def encoder_name(self) -> Literal["rnn", "gru", "lstm", "convolution", "self-attention"]:
        """Name the part that reads the source."""
        return self.encoder or self.cell

    @property
    def has_recurrent_encoder(self) -> bool:
        """Return whether the encoder goes from state to state."""
        return self.encoder_name not in ("convolution", "self-attention")

    def __post_init__(self) -> None:
        if self.encoder_name == "self-attention":
            check_divisible(self.heads, self.size)
        if self.reach is not None and self.encoder_name != "convolution":
            raise ConfigError(
                "reach", f'{self.reach} given with an encoder of {self.encoder_name}, expected encoder = "convolution"'
            )
