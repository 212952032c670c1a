"""A check that a configuration's sizes match the weights, before any memory is taken for a model.

The model is built once without memory (torch's meta device), with no more operations than so many weights can need, and
its names and shapes are compared with the heading of the file. A configuration that asks for a thousand million layers
is refused after the first few.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.data import Prepared
from regard.errors import CheckpointError
from regard.models import ModelConfig
from regard.tasks.settings import Settings
from regard.tasks.task import build_model
from regard.training import Prediction, plain_weights_file, read_manifest, trainer_state, weight_files

LARGE = 2**20  # from here on an option must be borne out by the weights
OPERATIONS = 200  # that one weight takes to be made, at most; it is about ten
SOME = 2_000  # operations that a model may take beside
NUMBERS_ALONE = {nn.init.normal_, Tensor.normal_, Tensor.__truediv__, Tensor.div}  # that is all they change


class TooManyError(Exception):
    """A model under construction has more parts than there are weights."""


class Counting(TorchFunctionMode):
    """A counter of torch's function calls inside the block; a tensor without memory has no numbers to change."""

    def __init__(self, most: int):
        super().__init__()
        self.allowance = most

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.allowance -= 1
        # A `with` that ends puts torch's state back by a function, too, and must be let end.
        if self.allowance < 0 and function is not torch._C._set_grad_enabled:
            raise TooManyError
        named = kwargs or {}
        if function in NUMBERS_ALONE and not any(isinstance(other, Tensor) for other in args[1:]):
            tensor = args[0] if args else named["tensor"]
            # To do nothing, torch would import its compiler, which takes longer than the rest of opening a run.
            if tensor.is_meta and tensor.is_floating_point():
                return tensor
        if function is torch.randn and "generator" not in named:
            # Likewise, for a shape: its compiler's symbols, with sympy.
            tensor = torch.empty(*args, **named)
            if tensor.is_meta:
                return tensor
        return function(*args, **named)


def check_sizes(
    build: Callable[[], nn.Module],
    config: ModelConfig,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    config_path: str,
    weights_path: str,
) -> None:
    """Refuse options of a model whose weights have other names or shapes than these.

    `build` makes the model; the paths are of the files that options and weights stand in.
    """
    numbers = sum(prod(shape) for shape in shapes.values())
    for field in fields(config):
        value = getattr(config, field.name)
        if type(value) is int and value > max(LARGE, numbers):
            raise CheckpointError(
                f"{config_path}: model.{field.name} is {value:,}, but its checkpoint has only {numbers:,} numbers"
            )
    most = OPERATIONS * len(shapes) + SOME
    try:
        try:
            with torch.device("meta"), Counting(most):
                model = build()
        except NotImplementedError:  # a backbone made elsewhere may need numbers while it is built
            with Counting(most):
                model = build()
    except TooManyError:
        raise CheckpointError(
            f"{config_path}: its [model] has more parts than the {len(shapes):,} weights of its checkpoint"
        ) from None
    except RuntimeError as error:  # a size that no tensor can have
        raise CheckpointError(
            f"{config_path}: its [model] cannot be built: {(str(error) or type(error).__name__).splitlines()[0]}"
        ) from None
    weight_files.check_shapes(weight_files.weights_of(model), shapes, weights_path)


def check_run_sizes(settings: Settings, prepared: Prepared, run: Path, checkpoint: Path, resumed: bool) -> None:
    """Refuse settings of another model than that of the run to resume or begin with; only headers are read.

    A run that begins with another one may have adapters of its own.
    """
    manifest = read_manifest(checkpoint)
    stored, own = manifest.get("task", {}).get("model"), settings.table()["model"]
    if not resumed and isinstance(stored, Mapping):
        stored, own = ({key: value for key, value in each.items() if key != "adapter"} for each in (stored, own))
        own |= {"adapter": 0} if hasattr(settings.model, "adapter") else {}  # as what is left out is filled in
    trainer_state.check_same("model", stored, own, checkpoint)
    path = plain_weights_file(checkpoint, manifest)
    shapes = {name: shape for name, shape in weight_files.read_shapes(path).items() if name.startswith("model.")}
    check_sizes(
        lambda: Prediction(build_model(settings, prepared.tokenizers, prepared.labels)),
        settings.model,
        shapes,
        config_path=str(run / "config.toml"),
        weights_path=str(path),
    )
