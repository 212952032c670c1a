"""A small residual network from pixels to a grid of features: He et al. 2016 (arXiv:1512.03385, 1603.05027).

The first stage halves the picture by its stem, every further one by its first block, and doubles the channels: 3 stages
make 8 × 8 places of a picture of 64 × 64. Blocks have their norm and ReLU before each convolution, so that what is
added up stays as it is.

Norms over a batch, the default, keep what makes a picture differ from others; those of a group of channels over one
picture even out its colours: on drawn scenes of one shape the loss of a caption after 300 steps was 0.17 with the
former and 0.49 with the latter. In evaluation a picture alone gives what it gives among others.
"""

# b pictures · c channels · H W height and width of a picture · h w of the grid
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from regard.attention import check_positive
from regard.errors import ArgumentError, ShapeError

Norm = Literal["batch", "place"]


class ResNet(nn.Module):
    """A residual network from pixels, as bytes, to a grid of features.

    `norm`: "batch" has the numbers of a channel at mean 0 and variance 1 over all pictures of a batch, "place" those of
    all channels at each place by itself: then what is at one place depends on its neighbourhood alone.
    """

    def __init__(self, channels: int = 32, stages: int = 3, blocks: int = 2, norm: Norm = "batch"):
        super().__init__()
        channels, stages, blocks = check_positive(channels=channels, stages=stages, blocks=blocks)
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.stages = nn.ModuleList()
        widths = [channels * 2**stage for stage in range(stages)]
        for stage, width in enumerate(widths):
            before = widths[max(0, stage - 1)]
            first = Block(before, width, norm, stride=2 if stage else 1)
            self.stages.append(nn.Sequential(first, *(Block(width, width, norm) for _ in range(blocks - 1))))
        self.width = widths[-1]
        self.norm = make_norm(norm, self.width)
        # Half as much again as fast on a CPU, and what a GPU likes.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: UInt8[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """The grid of features of each picture."""
        x = self.start(pixels)
        for stage in self.stages:
            x = stage(x)
        return self.end(x)

    def start(self, pixels: UInt8[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """Apply the stem, which turns pixels into the first stage's input."""
        if pixels.ndim != 4 or pixels.shape[1] != 3 or 0 in pixels.shape[2:]:
            raise ShapeError(f"pixels: {list(pixels.shape)} given, expected [b 3 h w] with at least one pixel")
        x = pixels.contiguous(memory_format=torch.channels_last).to(self.stem.weight.dtype)
        return self.stem(x / 127.5 - 1)

    def end(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Turn the last stage's sum into features."""
        return F.relu(self.norm(x))


class Block(nn.Module):
    """Two convolutions, each after a norm and a ReLU, added to what came in."""

    def __init__(self, before: int, width: int, norm: Norm, stride: int = 1):
        super().__init__()
        self.norms = nn.ModuleList([make_norm(norm, before), make_norm(norm, width)])
        self.convolutions = nn.ModuleList(
            [
                nn.Conv2d(before, width, 3, stride, padding=1, bias=False),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
            ]
        )
        nn.init.zeros_(self.convolutions[1].weight)  # type: ignore[arg-type]  # it starts as the identity
        self.shortcut = nn.Conv2d(before, width, 1, bias=False) if before != width else nn.Identity()
        self.stride = stride

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d e f"]:
        """Add the two convolutions to x, or to its projection."""
        y = self.convolutions[0](F.relu(self.norms[0](x)))
        y = self.convolutions[1](F.relu(self.norms[1](y)))
        if self.stride > 1:
            x = F.avg_pool2d(x, self.stride, ceil_mode=True)
        return self.shortcut(x) + y


class PlaceNorm(nn.LayerNorm):
    """A norm that gives the channels of each place mean 0 and variance 1."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Normalise with channels last, where they lie in memory anyway."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


def make_norm(norm: Norm, channels: int) -> nn.Module:
    """Make a norm of this kind over so many channels."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "place":
        return PlaceNorm(channels)
    raise ArgumentError(f'norm: {norm!r} given, expected "batch" or "place"')
