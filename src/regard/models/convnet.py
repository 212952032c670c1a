"""Self-attention inside a ConvNet: Zhang et al. 2018 (arXiv:1805.08318), as an image classifier.

The paper puts the layer into a GAN; here it stands between two stages of a small ResNet, and its γ starts at 0, so that
the network starts as the same one without the layer. A convolution sees its neighbourhood, and the mean over all places
adds up what each of them says: whether two distant places go together, only the layer can tell. (Therefore norms look
at one place each: a norm over the whole picture would carry word from one place to the other.)
"""

# b pictures · c channels · h w height and width of the grid · v labels
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.grid import GridSelfAttention
from regard.attention.span import Lengths
from regard.models.contract import Memory, Model, Pictures
from regard.models.options import ConvNet
from regard.models.resnet import ResNet

__all__ = ["ConvNetModel"]


class ConvNetModel(Model):
    """Stages of a ResNet, self-attention after one of them, the mean over all places, and a label."""

    def __init__(self, config: ConvNet, source: int, target: int):
        """`source` is not looked at: pictures have no vocabulary."""
        super().__init__()
        self.config = config
        self.resnet = ResNet(config.channels, config.stages, config.blocks, norm="place")
        self.attention: GridSelfAttention | None = None
        if config.attention:
            self.attention = GridSelfAttention(config.channels * 2 ** (config.after - 1), config.reduction)
        self.dropout = nn.Dropout(config.dropout)
        self.readout = nn.Linear(self.resnet.width, target)

    def encode(self, source: Pictures) -> Memory:
        """The features of every place, row by row."""
        grid = self.grid(source)
        states = grid.flatten(2).mT
        lengths = torch.full((len(states),), states.shape[1], device=states.device)
        return Memory(states, Lengths(lengths))

    def grid(self, source: Pictures) -> Float[Tensor, "b c h w"]:
        """The last stage's features."""
        x = self.resnet.start(source.pixels)
        for number, stage in enumerate(self.resnet.stages, 1):
            x = stage(x)
            if self.attention is not None and number == self.config.after:
                x = self.attention(x)
        return self.resnet.end(x)

    def classify(self, memory: Memory) -> Float[Tensor, "b v"]:
        """The scores of every label, from the mean over all places."""
        scores: Tensor = self.readout(self.dropout(memory.states.mean(1)))
        return scores
