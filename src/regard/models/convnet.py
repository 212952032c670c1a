"""Convolutional networks: those that make a grid of features of a picture, and an image classifier with attention.

`ResNet` goes from pixels to a grid of features as He et al. 2016 (arXiv:1512.03385, 1603.05027). The first stage halves
the picture by its stem, every further one by its first block, and doubles the channels: 3 stages make 8 × 8 places of a
picture of 64 × 64. Blocks have their norm and ReLU before each convolution, so that what is added up stays as it is.

Norms over a batch, the default, keep what makes a picture differ from others; those of a group of channels over one
picture even out its colours: on drawn scenes of one shape the loss of a caption after 300 steps was 0.17 with the
former and 0.49 with the latter. In evaluation a picture alone gives what it gives among others.

`Backbone` is another library's network with weights that a person has; nothing is downloaded. Of it the stages are kept
that leave at least a sixteenth of the picture's side, as the 14 × 14 places of 224 × 224 pixels in Xu et al. 2015; what
comes after them is cut off.

`ConvNetModel` is self-attention inside a ConvNet (Zhang et al. 2018, arXiv:1805.08318), as an image classifier.
The paper puts the layer into a GAN; here it stands between two stages of a small ResNet, where features have come
from a norm and a ReLU, as the paper's do, and its γ starts at 0, so that the network starts as the same one without
it. A convolution sees its neighbourhood, and the sum over all places adds up what each of them says: whether two
distant places go together, only the layer can tell. (Therefore norms look at one place each: a norm over the whole
picture would carry word from one place to the other.)

The sum of n places is divided by √n: as large for pictures of any size, and not so small as their mean, in which what
one place among many says is hardly heard.
"""

# b pictures · c channels · H W height and width of a picture · h w of the grid · v labels
from collections import OrderedDict
from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from regard.attention import GridSelfAttention, Lengths
from regard.errors import ConfigError, ShapeError
from regard.models.config import CaptionerConfig, ConvNetConfig
from regard.models.contract import Memory, Model, Notation, Pictures, Reading
from regard.plugins import import_extra

STRIDE = 16
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, which such networks are trained on
Norm = Literal["batch", "place"]


class ResNet(nn.Module):
    """A residual network from pixels, as bytes, to a grid of features.

    `norm`: "batch" has the numbers of a channel at mean 0 and variance 1 over all pictures of a batch, "place" those of
    all channels at each place by itself: then what is at one place depends on its neighbourhood alone.
    """

    def __init__(self, channels: int = 32, stages: int = 3, blocks: int = 2, norm: Norm = "batch"):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.stages = nn.ModuleList()
        widths = [channels * 2**stage for stage in range(stages)]
        for stage, width in enumerate(widths):
            before = widths[max(0, stage - 1)]
            first = Block(before, width, norm, stride=2 if stage else 1)
            self.stages.append(nn.Sequential(first, *(Block(width, width, norm) for _ in range(blocks - 1))))
        self.width = widths[-1]
        self.norm = NORMS[norm](self.width)
        # Half as much again as fast on a CPU, and what a GPU likes.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: UInt8[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """Return the grid of features of each picture."""
        x = self.start(pixels)
        for stage in self.stages:
            x = stage(x)
        return F.relu(self.norm(x))

    def start(self, pixels: UInt8[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """Apply the stem, which turns pixels into the first stage's input."""
        if pixels.ndim != 4 or pixels.shape[1] != 3 or 0 in pixels.shape[2:]:
            raise ShapeError(f"pixels: {list(pixels.shape)} given, expected [b 3 h w] with at least one pixel")
        x = pixels.contiguous(memory_format=torch.channels_last).to(self.stem.weight.dtype)
        return self.stem(x / 127.5 - 1)


class Block(nn.Module):
    """Two convolutions, each after a norm and a ReLU, added to what came in."""

    def __init__(self, before: int, width: int, norm: Norm, stride: int = 1):
        super().__init__()
        self.norms = nn.ModuleList([NORMS[norm](before), NORMS[norm](width)])
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


NORMS: dict[Norm, type[nn.Module]] = {"batch": nn.BatchNorm2d, "place": PlaceNorm}  # each is made of channels


def make_backbone(config: CaptionerConfig) -> nn.Module:
    """Build the module from pixels to a grid that the options name; its `width` is the number of channels.

    Weights that a person has are not read here (see `CaptionerModel.load_pretrained`): a trained run has its own.
    """
    if config.backbone != "resnet":
        return Backbone(config.backbone, fixed_norms=config.weights is not None, frozen=config.frozen)
    return ResNet(config.channels, config.stages, config.blocks).requires_grad_(not config.frozen)


class Backbone(nn.Module):
    """A network of `timm` or `torchvision`, named as "timm:resnet50", up to a grid of features.

    With `fixed_norms`, for weights that were trained elsewhere, means and variances of batch norms stay as they are.
    With `frozen` nothing of it is trained.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, name: str, fixed_norms: bool = False, frozen: bool = False):
        super().__init__()
        library, _, model = name.partition(":")
        self.net, self.width = {"timm": from_timm, "torchvision": from_torchvision}[library](model)
        self.frozen, self.fixed_norms = frozen, frozen or fixed_norms
        if frozen:
            self.net.requires_grad_(False)
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1) * 255, persistent=False)

    def forward(self, pixels: UInt8[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """Return the grid of features of each picture."""
        x = (pixels.to(self.mean.dtype) - self.mean) / self.std
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            grid = self.net(x)
        return grid[0] if isinstance(grid, list | tuple) else grid

    def train(self, mode: bool = True) -> "Backbone":
        """Switch to training mode, except for frozen parts and batch norms that were trained elsewhere."""
        super().train(mode)
        if self.frozen:
            self.net.eval()
        elif self.fixed_norms:
            for module in self.net.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self


def from_timm(name: str) -> tuple[nn.Module, int]:
    """Load the stages of a timm network, and return them with their width."""
    timm = import_extra("timm", "backbones")
    if name not in timm.list_models():
        raise ConfigError("model.backbone", f'"timm:{name}" given, which this timm does not have')
    try:
        network = timm.create_model(name, pretrained=False, features_only=True)
    except (RuntimeError, AttributeError, TypeError, AssertionError) as error:
        raise ConfigError(
            "model.backbone", f'"timm:{name}" given, which returns no grid of features: {error}'
        ) from None
    strides = network.feature_info.reduction()
    last = max((i for i, stride in enumerate(strides) if stride <= STRIDE), default=0)
    net: nn.Module = timm.create_model(name, pretrained=False, features_only=True, out_indices=(last,))
    return net, int(net.feature_info.channels()[-1])  # type: ignore[operator, union-attr]


def from_torchvision(name: str) -> tuple[nn.Module, int]:
    """Load the stages of a torchvision network, and return them with their width."""
    models = import_extra("torchvision", "backbones").models
    if name not in models.list_models(module=models):
        raise ConfigError("model.backbone", f'"torchvision:{name}" given, which this torchvision does not have')
    network = models.get_model(name, weights=None)
    # Names as in the whole network, so that its files of weights fit.
    if isinstance(getattr(network, "features", None), nn.Sequential):
        parts = [(f"features.{key}", part) for key, part in network.features.named_children()]
    elif hasattr(network, "layer4") and hasattr(network, "avgpool"):
        parts = [(key, part) for key, part in network.named_children() if key not in ("avgpool", "fc")]
    else:
        raise ConfigError(
            "model.backbone", f'"torchvision:{name}" given, expected a network whose stages follow one another'
        )
    stages, width, x = [], 0, torch.zeros(1, 3, 224, 224)
    network.eval()
    with torch.no_grad():
        for key, part in parts:
            x = part(x)
            if x.ndim != 4 or x.shape[-1] * STRIDE < 224:
                break
            stages.append((key, part))
            width = x.shape[1]
    return Stages(stages), width


class Stages(nn.Module):
    """Parts of a network, one after the other, under the names that they had."""

    def __init__(self, parts: list[tuple[str, nn.Module]]):
        super().__init__()
        inside = [(key.split(".")[1], part) for key, part in parts if "." in key]
        self.names = ["features"] if inside else [key for key, _ in parts]
        for key, part in [("features", nn.Sequential(OrderedDict(inside)))] if inside else parts:
            self.add_module(key, part)

    def forward(self, x: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """Run all parts."""
        for name in self.names:
            x = self.get_submodule(name)(x)
        return x


class ConvNetModel(Model):
    """Stages of a ResNet, self-attention after one of them, the sum over all places, and a label."""

    def __init__(self, config: ConvNetConfig, source: int, target: int):
        """Build the network; `source` is ignored, as pictures have no vocabulary."""
        super().__init__()
        self.config = config
        self.resnet = ResNet(config.channels, config.stages, config.blocks, norm="place")
        width = config.channels * 2 ** (config.after - 1)
        self.norm = PlaceNorm(width)
        self.attention = GridSelfAttention(width, config.reduction) if config.attention else None
        self.dropout = nn.Dropout(config.dropout)
        self.readout = nn.Linear(self.resnet.width, target)

    def encode(self, source: Pictures) -> Memory:
        """Encode pictures as the last stage's features of every place, row by row."""
        x = self.resnet.start(source.pixels)
        for number, stage in enumerate(self.resnet.stages, 1):
            x = stage(x)
            if number == self.config.after:
                x = F.relu(self.norm(x))
                x = x if self.attention is None else self.attention(x)
        states = F.relu(self.resnet.norm(x)).flatten(2).mT
        lengths = torch.full((len(states),), states.shape[1], device=states.device)
        return Memory(states, Lengths(lengths))

    def classify(self, memory: Memory) -> Float[Tensor, "b v"]:
        """Compute the scores of every label, from the sum over all places."""
        total = memory.states.sum(1) / memory.states.shape[1] ** 0.5
        scores: Tensor = self.readout(self.dropout(total))
        return scores

    @cached_property
    def notation(self) -> Notation:
        """Return the formulas and symbols of the paper."""
        return Notation(
            {
                "q": ("q = W_f x + b_f", "the query of this place"),
                "k": ("k = W_g x + b_g", "the key of every place"),
                "v": ("v = W_h x + b_h", "the value of every place"),
            },
            readout=(Reading("readout", "input", "Σ_i y_i / √n", "the sum over all n places of the last stage"),),
            boxes=(
                {
                    "input": "pixels",
                    r"attention\.query": "f(x) = W_f x",
                    r"attention\.key": "g(x) = W_g x",
                    r"attention\.value": "h(x) = W_h x",
                    "attention score$": "s_{ij} = f(x_i)^⊤ g(x_j)",
                    "attention weights$": "β_{j,i}",
                    "attention sum$": "Σ_i β_{j,i} h(x_i)",
                    r"attention\.output": "o_j = W_v (…)",
                    "gamma": "γ",
                    "attention mul": "γ o_j",
                    "attention add": "y_j = γ o_j + x_j",
                    " softmax$": "p(label | pixels)",
                },
            ),
        )
