"""Reading weights from safetensors files, loading them into a model with checks, and averaging them.

safetensors itself refuses a malformed file: gaps, overlaps, too few or too many bytes, unknown dtypes. Errors here name
the weight that is missing, unknown, of a wrong shape or dtype, or not finite.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load
from torch import Tensor, nn

from regard.config import visible
from regard.errors import CheckpointError
from regard.io import packs, reading
from regard.models import check_weight

REFUSAL = 300  # characters of an error message of safetensors
NAME = 500  # characters of a tensor's name, at most


def read_tensors(path: Path, files: Mapping[str, Any]) -> dict[str, Tensor]:
    """Read a safetensors file, after checking its size and checksum."""
    expected = files[path.name]
    try:
        place = packs.find_pack(path)
        size = path.stat().st_size if place is None else place[0].size(place[1])
        if (place is not None or path.is_file()) and size != expected["bytes"]:
            raise CheckpointError(f"{path}: damaged, {size:,} bytes given, expected {expected['bytes']:,}")
        content = reading.read_bytes(path, expected["bytes"])
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except reading.Unreadable as error:
        raise CheckpointError(f"{path}: damaged, {error}") from None
    except (MemoryError, OverflowError):
        raise CheckpointError(f"{path}: {expected['bytes']:,} bytes given, more than fit into memory") from None
    # Opening a pack has already checked every byte of it.
    if place is None and hashlib.sha256(content).hexdigest() != expected["sha256"]:
        raise CheckpointError(f"{path}: damaged, its contents do not match the checksum in manifest.json")
    with named_refusals(path):
        tensors = load(content)
        check_names(tensors)
    return tensors


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read the shapes of a safetensors file's tensors; outside a pack, only from its header."""
    place = packs.find_pack(path)
    with named_refusals(path):
        if place is not None:
            shapes = {name: tuple(each["shape"]) for name, each in safetensors.deserialize(place[0].read(place[1]))}
        else:
            path.stat()  # for a missing file this raises the system's own message, unlike safetensors
            with safetensors.safe_open(path, "pt") as file:
                shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        check_names(shapes)
    return shapes


@contextlib.contextmanager
def named_refusals(path: Path) -> Iterator[None]:
    """Turn errors about a safetensors file inside the block into a CheckpointError that names the file."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        text = str(error).splitlines()[0]  # may repeat names from the file, of any length
        raise CheckpointError(f"{path}: not a safetensors file ({visible(text[:REFUSAL])})") from None


def check_names(names: Iterable[str]) -> None:
    """Refuse tensor names that are too long or not printable, and so unfit for an error message."""
    if any(len(name) > NAME or not name.isprintable() for name in names):
        raise ValueError(f"a tensor's name is longer than {NAME} characters, or not printable")


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights and buffers by name; a shared one appears only under its first name."""
    names: dict[int, str] = {}
    weights = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in names:
            names[id(tensor)] = name
            weights[name] = tensor
    return weights


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Load weights into a model, or raise a CheckpointError that names the first weight that does not fit."""
    load_tensors(weights_of(model), weights, where)


def load_tensors(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], where: str) -> None:
    """Load weights into a model's own tensors, or raise a CheckpointError that names the first that does not fit."""
    check_weights(own, weights, where)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def check_weights(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], where: str) -> None:
    """Refuse weights whose names, shapes or dtypes do not match a model's, or that are not finite."""
    check_shapes(own, {name: tuple(tensor.shape) for name, tensor in weights.items()}, where)
    for name, tensor in own.items():
        check_weight(name, weights[name], tensor.dtype, where)


def check_shapes(own: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Refuse weights whose names or shapes do not match a model's."""
    for name in shapes:
        if name not in own:
            raise CheckpointError(f"{where}: weight {name} given, which this model does not have")
    for name, tensor in own.items():
        if name not in shapes:
            raise CheckpointError(f"{where}: weight {name} is missing")
        if shapes[name] != tuple(tensor.shape):
            actual, expected = list(shapes[name]), list(tensor.shape)
            raise CheckpointError(f"{where}: weight {name} is {actual}, expected {expected}")


# ---- averages


@contextlib.contextmanager
def swap_values(parameters: Sequence[nn.Parameter], values: Iterable[Tensor]) -> Iterator[None]:
    """Replace the values of parameters inside the block."""
    saved = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, saved, strict=True):
                parameter.copy_(value)


def mean_weights(weights: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Average the weights of several checkpoints in float64, and cast the mean to the weights' dtype."""
    return {
        name: (sum(each[name].double() for each in weights) / len(weights)).to(first.dtype)  # type: ignore[union-attr]
        for name, first in weights[0].items()
    }
