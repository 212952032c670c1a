"""The options of `captioner`. Imports no torch."""

from dataclasses import dataclass, replace
from typing import Literal, Self

from regard.config import option, show_value
from regard.errors import ConfigError
from regard.models.config import DEEPEST, HEADS, LARGEST, WIDEST, ModelConfig, check_divisible


@dataclass(frozen=True)
class CaptionerConfig(ModelConfig):
    """Options of `captioner`."""

    backbone: str = option(
        "resnet", "network that makes the grid: resnet (Regard's own), timm:NAME or torchvision:NAME"
    )
    weights: str | None = option(None, "file with the backbone's weights (.safetensors, or a state_dict .pt)")
    frozen: bool = option(False, "do not train the backbone")
    channels: int = option(
        32, "width of the first stage of Regard's ResNet; each further stage doubles it", least=1, most=4096
    )
    stages: int = option(3, "number of stages of Regard's ResNet; each halves the grid", least=1, most=5)
    blocks: int = option(2, "number of residual blocks per stage", least=1, most=64)
    decoder: Literal["lstm", "transformer"] = option("lstm", "network that writes the caption")
    attention: Literal["soft", "hard", "straight-through", "none"] = option(
        "soft",
        "soft: all places, weighted; hard: one sampled place, learned by REINFORCE; straight-through: one sampled "
        "place, learned with Gumbel noise; none: the mean of the grid",
    )
    size: int = option(256, "width of the decoder's states", least=1, most=WIDEST)
    embedding: int = option(256, "width of the word embeddings", least=1, most=WIDEST)
    hidden: int = option(
        256, "width of the attention's hidden layer, or of a Transformer's feed-forward nets", least=1, most=WIDEST
    )
    heads: int = option(4, "number of attention heads of a Transformer", least=1, most=HEADS)
    layers: int = option(1, "number of stacked cells, or of blocks of a Transformer", least=1, most=DEEPEST)
    gate: bool = option(True, "use the gate β, with which the LSTM controls how much the picture counts for a word")
    penalty: float = option(1.0, "λ of the doubly stochastic penalty of soft attention", least=0, most=LARGEST)
    entropy: float = option(0.002, "λ_e, weight of hard attention's entropy term", least=0, most=LARGEST)
    reinforce: float = option(0.05, "λ_r, weight of hard attention's REINFORCE term", least=0, most=LARGEST)
    sampled: float = option(0.5, "share of sentences that use sampled places; the others use the mean", above=0, most=1)
    settle: int = option(
        500,
        "number of batches before sampling starts; over as many more, the share grows to `sampled`",
        least=0,
        most=1_000_000_000,
    )
    tau: float = option(1.0, "τ, temperature of straight-through attention's gradient", above=0, most=LARGEST)

    def self_contained(self) -> Self:
        """Return the configuration with Regard's own ResNet in the place of a backbone of another library."""
        return self if self.backbone == "resnet" else replace(self, backbone="resnet", weights=None, frozen=False)

    def picture_numbers(self, side: int) -> int:
        """Estimate the numbers as four times the first grid of Regard's own network."""
        return 0 if self.backbone != "resnet" else 4 * (side // 2) ** 2 * self.channels

    def __post_init__(self) -> None:
        if self.backbone != "resnet" and not self.backbone.startswith(("timm:", "torchvision:")):
            raise ConfigError(
                "backbone", f"{show_value(self.backbone)} given, expected resnet, timm:NAME or torchvision:NAME"
            )
        if self.backbone == "resnet" and self.frozen and self.weights is None:
            raise ConfigError("frozen", "true given without weights: the backbone would keep its random weights")
        if self.decoder == "transformer":
            check_divisible(self.heads, self.size)
            if self.attention != "soft":
                raise ConfigError(
                    "attention", f'"{self.attention}" given with decoder = "transformer", expected "soft"'
                )
