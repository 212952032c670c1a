r"""Low-rank adapters: fine-tuning that trains two small matrices beside each large one, which stays frozen.

Hu et al. 2021 (arXiv:2106.09685), section 4.1: $W + B A$, with $A$ [r e] drawn at random and $B$ [d r] zero, so that
training begins with the unchanged model. The paper's factor α/r is 1 here: the learning rate can absorb it. Regard
adapts the attention's projections, as the paper does, and also the feed-forward nets; embeddings, norms, biases and
the readout stay frozen.

The adapter computes a layer's `weight` from W, A and B in float32, so that code that reads `weight` needs no change.
A checkpoint holds only A and B; the run folder holds W once, in base.safetensors. `merge_weights` combines them into
plain weights.
"""

# d width out · e width in · r rank
import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regard.attention import Block, Heads, MixingBlock
from regard.config import show_value
from regard.errors import CheckpointError, ConfigError
from regard.models import check_weight
from regard.training.weights import mean_weights, swap_values, weights_of

KEY = "model.adapter"
PLACE = ".parametrizations.weight.0."  # between the names of a layer and of a matrix of its adapter
FREEZE = "training.freeze"


class Adapter(nn.Module):
    """A rank-r update of a weight [d e]: the product of `up` (the paper's B) and `down` (its A)."""

    down: Float[Tensor, "r e"]
    up: Float[Tensor, "d r"]

    def __init__(self, weight: Tensor, rank: int, generator: torch.Generator | None = None):
        super().__init__()
        rows, columns = weight.shape
        down = torch.empty(rank, columns, dtype=weight.dtype)
        # The paper's own code initialises A as PyTorch initialises a linear layer.
        nn.init.kaiming_uniform_(down, a=math.sqrt(5), generator=generator)
        self.down = nn.Parameter(down.to(weight.device))
        self.up = nn.Parameter(torch.zeros(rows, rank, dtype=weight.dtype, device=weight.device))
        self.merged = False  # whether the weight already contains the update

    def forward(self, weight: Float[Tensor, "d e"]) -> Float[Tensor, "d e"]:
        """Compute W + B A without autocast: half precision would round a small update away."""
        if self.merged:
            return weight
        with torch.autocast(weight.device.type, enabled=False):
            return torch.addmm(weight, self.up, self.down)


# ---- in training


def add_adapters(model: nn.Module, rank: int, seed: int = 0) -> int:
    """Add adapters to the projections of a model's attentions and feed-forward nets, and freeze all other parameters.

    Layers that are already frozen get no adapter. Return the number of trainable weights.
    """
    generator = torch.Generator().manual_seed(seed)
    found: list[nn.Module | None] = []
    for module in model.modules():
        if isinstance(module, Heads):
            found += [module.projection, module.query, module.key, module.value, module.output]
        elif isinstance(module, Block | MixingBlock) and module.feed is not None:
            found += module.feed
    layers = [each for each in dict.fromkeys(found) if isinstance(each, nn.Linear) and each.weight.requires_grad]
    if not layers:
        raise ConfigError(
            KEY, f"{rank} given, but there is no projection to adapt that training.freeze leaves to train; expected 0"
        )
    for layer in layers:
        if rank > min(layer.weight.shape):
            raise ConfigError(
                KEY, f"{rank} given, expected at most {min(layer.weight.shape)}, the smaller side of a weight"
            )
    model.requires_grad_(False)
    for layer in layers:
        # `unsafe` skips the trial call of forward, which is not needed: the update is zero.
        parametrize.register_parametrization(layer, "weight", Adapter(layer.weight, rank, generator), unsafe=True)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


class Adapted(NamedTuple):
    """A layer with an adapter: the layer, its frozen weight, and the adapter."""

    layer: nn.Module
    weight: nn.Parameter
    adapter: Adapter


def adapters_of(model: nn.Module) -> dict[str, Adapted]:
    """Return the layers that have adapters, by name."""
    found: dict[str, Adapted] = {}
    for name, module in model.named_modules():
        if parametrize.is_parametrized(module, "weight"):
            parts: Any = module.parametrizations
            if isinstance(parts.weight[0], Adapter):
                found[name] = Adapted(module, parts.weight.original, parts.weight[0])
    return found


def has_adapters(model: nn.Module) -> bool:
    """Return whether a model has adapters."""
    return any(isinstance(module, Adapter) for module in model.modules())


def trained_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights that a checkpoint holds: all of them or, with adapters, only the trained ones."""
    weights = weights_of(model)
    if not has_adapters(model):
        return weights
    return {name: tensor for name, tensor in weights.items() if PLACE in name or tensor.requires_grad}


def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights without its adapters, under the names that a plain model has."""
    return {
        name.replace(".parametrizations.weight.original", ".weight"): tensor.detach()
        for name, tensor in weights_of(model).items()
        if PLACE not in name
    }


@contextlib.contextmanager
def merge_adapters(model: nn.Module) -> Iterator[None]:
    """Merge adapters into the weights inside the block, for decoding, which reads the weights often."""
    adapters = list(adapters_of(model).values())
    with swap_values([each.weight for each in adapters], (each.adapter(each.weight) for each in adapters)):
        try:
            for each in adapters:
                each.adapter.merged = True
            yield
        finally:
            for each in adapters:
                each.adapter.merged = False


def fold_adapters(model: nn.Module) -> None:
    """Merge a model's adapters into plain weights permanently, and remove the adapters."""
    for each in adapters_of(model).values():
        parametrize.remove_parametrizations(each.layer, "weight", leave_parametrized=True)


def describe_adapters(model: nn.Module) -> list[tuple[str, str]]:
    """Describe the adapters of a model for the facts of a run; return an empty list if it has none."""
    adapters = adapters_of(model)
    if not adapters:
        return []
    own = {id(parameter) for each in adapters.values() for parameter in each.adapter.parameters()}
    count = sum(parameter.numel() for parameter in model.parameters() if id(parameter) in own)
    others = sum(parameter.numel() for parameter in model.parameters() if id(parameter) not in own)
    rank = len(next(iter(adapters.values())).adapter.down)
    return [("adapter", f"{count:,} weights of rank {rank} ({100 * count / others:.2g} %)")]


# ---- in checkpoints


def merge_weights(base: Mapping[str, Tensor], trained: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Return plain weights: the base weights plus the adapters' updates; error messages name the file `where`."""
    weights = dict(base)
    layers = dict.fromkeys(name.partition(PLACE)[0] for name in trained if PLACE in name)
    for layer in layers:
        name, (up, down) = f"{layer}.weight", (f"{layer}{PLACE}{part}" for part in ("up", "down"))
        for each in (up, down):
            if each not in trained:
                raise CheckpointError(f"{where}: weight {each} is missing")
        if name not in base:
            raise CheckpointError(f"{where}: weight {up} given, but there is no {name} in base.safetensors")
        left, right, expected = trained[up], trained[down], base[name].shape
        matched = left.ndim == right.ndim == len(expected) == 2 and left.shape[1] == right.shape[0]
        if not matched or (left.shape[0], right.shape[1]) != tuple(expected):
            raise CheckpointError(
                f"{where}: weight {up} and its other half are {list(left.shape)} × {list(right.shape)}, expected a "
                f"product {list(expected)}"
            )
        for each in (up, down):
            check_weight(each, trained[each], base[name].dtype, where)
        weights[name] = torch.addmm(base[name], left.to(base[name]), right.to(base[name]))
    for name, tensor in trained.items():
        if PLACE in name and name.partition(PLACE)[2] in ("up", "down"):
            continue
        if name not in base:
            raise CheckpointError(f"{where}: weight {name} given, which base.safetensors does not have")
        weights[name] = tensor
    return weights


def mean_adapters(checkpoints: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Average the weights of several checkpoints; of adapters, average the products $B A$.

    The mean of n products of rank r has rank n r: $[B_1 … B_n] / n$ times the stacked $A_i$.
    """
    mean = mean_weights(checkpoints)
    for name in mean:
        if PLACE in name:
            parts = [each[name] for each in checkpoints]
            mean[name] = torch.cat(parts, 0) if name.endswith(".down") else torch.cat(parts, 1) / len(parts)
    return mean


def load_mean_adapters(model: nn.Module, mean: Mapping[str, Tensor]) -> None:
    """Load a mean of checkpoints, whose adapters have a higher rank; the model cannot be trained afterwards."""
    for name, each in adapters_of(model).items():
        for part in ("up", "down"):
            old = getattr(each.adapter, part)
            setattr(each.adapter, part, nn.Parameter(mean[f"{name}{PLACE}{part}"].to(old), requires_grad=False))


# ---- frozen parts


def freeze_parts(model: nn.Module, parts: Sequence[str]) -> int:
    """Freeze the parameters that each part selects: `embeddings`, a module's name such as encoder, or a pattern.

    A pattern matches parameter names, such as encoder.blocks.0.* or *.bias. Return the number of frozen weights. Raise
    a ConfigError if a part matches no parameter, or if the parts leave no parameter to train.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}  # each shared parameter once
    frozen: set[int] = set()
    for part in parts:
        if part == "embeddings":
            tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
            meant = {id(parameter) for module in tables for parameter in module.parameters()}
        else:
            every = model.named_parameters(remove_duplicate=False)
            meant = {id(parameter) for name, parameter in every if matches(name, part)}
        if not meant:
            listed = ", ".join([*list(dict.fromkeys(name.partition(".")[0] for name in names.values())), "embeddings"])
            raise ConfigError(
                FREEZE, f"{show_value(part)} given, which no weight is called; expected {listed} or a pattern"
            )
        frozen |= meant
    if parts and frozen >= names.keys():
        raise ConfigError(FREEZE, f"{', '.join(map(show_value, parts))} given, which leaves nothing to train")
    for parameter in model.parameters():  # the model may have frozen others itself
        if id(parameter) in frozen:
            parameter.requires_grad_(False)
    return sum(parameter.numel() for parameter in model.parameters() if id(parameter) in frozen)


def matches(name: str, part: str) -> bool:
    """Return whether a parameter has the name `part`, belongs to the module `part`, or matches the pattern `part`."""
    return name == part or name.startswith(f"{part}.") or fnmatchcase(name, part)
