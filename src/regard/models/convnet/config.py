"""The options of `convnet`. Imports no torch."""

from dataclasses import dataclass

from regard.config import option
from regard.errors import ConfigError
from regard.models.config import WIDEST, ModelConfig


@dataclass(frozen=True)
class ConvNetConfig(ModelConfig):
    """Options of `convnet`."""

    channels: int = option(32, "width of the first stage; each further stage doubles it", least=1, most=4096)
    stages: int = option(3, "number of stages; each halves the grid", least=1, most=5)
    blocks: int = option(1, "number of residual blocks per stage", least=1, most=64)
    attention: bool = option(True, "add a self-attention layer after the stage `after`")
    after: int = option(2, "stage, from 1, after which the self-attention layer comes", least=1, most=5)
    reduction: int = option(
        8, "factor by which the layer reduces its channels for queries, keys and values", least=1, most=WIDEST
    )

    def picture_numbers(self, side: int) -> int:
        """Estimate the numbers as four times the first grid."""
        return 4 * (side // 2) ** 2 * self.channels

    def __post_init__(self) -> None:
        if self.after > self.stages:
            raise ConfigError("after", f"{self.after} given, but there are {self.stages} stages")
        channels = self.channels * 2 ** (self.after - 1)
        if self.attention and channels % self.reduction:
            raise ConfigError("reduction", f"{channels} channels are not divisible by {self.reduction}")
