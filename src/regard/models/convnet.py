"""Self-attention inside a ConvNet: Zhang et al. 2018 (arXiv:1805.08318), as an image classifier.

The paper puts the layer into a GAN; here it stands between two stages of a small ResNet, where features have come
from a norm and a ReLU, as the paper's do, and its γ starts at 0, so that the network starts as the same one without
it. A convolution sees its neighbourhood, and the sum over all places adds up what each of them says: whether two
distant places go together, only the layer can tell. (Therefore norms look at one place each: a norm over the whole
picture would carry word from one place to the other.)

The sum of n places is divided by √n: as large for pictures of any size, and not so small as their mean, in which what
one place among many says is hardly heard.
"""

# b pictures · c channels · h w height and width of the grid · v labels
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import GridSelfAttention, Lengths
from regard.models.config import ConvNetConfig
from regard.models.contract import Memory, Model, Notation, Pictures, Reading
from regard.models.layers.backbone import ResNet, make_norm


class ConvNetModel(Model):
    """Stages of a ResNet, self-attention after one of them, the sum over all places, and a label."""

    notation = Notation(
        {
            "q": ("q = W_f x + b_f", "the query of this place"),
            "k": ("k = W_g x + b_g", "the key of every place"),
            "v": ("v = W_h x + b_h", "the value of every place"),
        },
        readout=(Reading("readout", "input", "Σ_i y_i / √n", "the sum over all n places of the last stage"),),
    )

    def __init__(self, config: ConvNetConfig, source: int, target: int):
        """Build the network; `source` is ignored, as pictures have no vocabulary."""
        super().__init__()
        self.config = config
        self.resnet = ResNet(config.channels, config.stages, config.blocks, norm="place")
        width = config.channels * 2 ** (config.after - 1)
        self.norm = make_norm("place", width)
        self.attention = GridSelfAttention(width, config.reduction) if config.attention else None
        self.dropout = nn.Dropout(config.dropout)
        self.readout = nn.Linear(self.resnet.width, target)

    def encode(self, source: Pictures) -> Memory:
        """Encode pictures as the features of every place, row by row."""
        grid = self.grid(source)
        states = grid.flatten(2).mT
        lengths = torch.full((len(states),), states.shape[1], device=states.device)
        return Memory(states, Lengths(lengths))

    def grid(self, source: Pictures) -> Float[Tensor, "b c h w"]:
        """Compute the last stage's features."""
        x = self.resnet.start(source.pixels)
        for number, stage in enumerate(self.resnet.stages, 1):
            x = stage(x)
            if number == self.config.after:
                x = F.relu(self.norm(x))
                x = x if self.attention is None else self.attention(x)
        return self.resnet.end(x)

    def classify(self, memory: Memory) -> Float[Tensor, "b v"]:
        """The scores of every label, from the sum over all places."""
        total = memory.states.sum(1) / memory.states.shape[1] ** 0.5
        scores: Tensor = self.readout(self.dropout(total))
        return scores
