"""Freeze parts of a model: their weights stay as they are, and the optimiser keeps nothing for them."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from regard.config import show_value
from regard.errors import ConfigError

KEY = "training.freeze"


def freeze_parts(model: nn.Module, parts: Sequence[str]) -> int:
    """Freeze the parameters that are meant by `embeddings`, by a module's name such as encoder, or by a pattern.

    A pattern is one of parameters' names, such as encoder.blocks.0.* or *.bias. Return the number of weights that are
    frozen; a part that there is none of is an error, and so is a model of which nothing is left to train.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}  # a shared one once
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
                KEY, f"{show_value(part)} given, which no weight is called; expected {listed} or a pattern"
            )
        frozen |= meant
    if parts and frozen >= names.keys():
        raise ConfigError(KEY, f"{', '.join(map(show_value, parts))} given, which leaves nothing to train")
    for parameter in model.parameters():  # others may be frozen by the model itself
        if id(parameter) in frozen:
            parameter.requires_grad_(False)
    return sum(parameter.numel() for parameter in model.parameters() if id(parameter) in frozen)


def matches(name: str, part: str) -> bool:
    """Return whether a parameter's name is that of a part, below it, or fits its pattern."""
    return name == part or name.startswith(f"{part}.") or fnmatchcase(name, part)
