"""Weights from a safetensors file, into a model (one that is missing, misshapen or not finite is named), and averaged.

What is wrong with a file (gaps, overlaps, too few or too many bytes, unknown dtypes) safetensors itself refuses.
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

REFUSAL = 300  # characters of what safetensors says
NAME = 500  # characters of a tensor's name


def read_tensors(path: Path, files: Mapping[str, Any]) -> dict[str, Tensor]:
    """Read a safetensors file, after checking that its bytes are those that were written."""
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
    # Of a pack every byte was checked when it was opened.
    if place is None and hashlib.sha256(content).hexdigest() != expected["sha256"]:
        raise CheckpointError(f"{path}: damaged, its contents do not match the checksum in manifest.json")
    with named_refusals(path):
        tensors = load(content)
        check_names(tensors)
    return tensors


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read the shapes of a safetensors file's tensors: from its header alone, where it is not in a pack."""
    place = packs.find_pack(path)
    with named_refusals(path):
        if place is not None:
            shapes = {name: tuple(each["shape"]) for name, each in safetensors.deserialize(place[0].read(place[1]))}
        else:
            path.stat()  # of what is not there, safetensors does not give the system's own words
            with safetensors.safe_open(path, "pt") as file:
                shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        check_names(shapes)
    return shapes


@contextlib.contextmanager
def named_refusals(path: Path) -> Iterator[None]:
    """Make what a safetensors file is refused with inside the block a CheckpointError that names it."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        text = str(error).splitlines()[0]  # which repeats names of the file, however long
        raise CheckpointError(f"{path}: not a safetensors file ({visible(text[:REFUSAL])})") from None


def check_names(names: Iterable[str]) -> None:
    """Refuse names that cannot stand in an error."""
    if any(len(name) > NAME or not name.isprintable() for name in names):
        raise ValueError(f"a tensor's name is longer than {NAME} characters, or not printable")


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights and buffers by name; shared ones appear once."""
    names: dict[int, str] = {}
    weights = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in names:
            names[id(tensor)] = name
            weights[name] = tensor
    return weights


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Load weights into a model, or name the one that is missing, unknown, of another shape or dtype, or not finite."""
    load_tensors(weights_of(model), weights, where)


def load_tensors(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], where: str) -> None:
    """Load weights into a model's own tensors, or name the one that is wrong."""
    check_weights(own, weights, where)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def check_weights(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], where: str) -> None:
    """Refuse weights that do not match a model's one for one."""
    check_shapes(own, {name: tuple(tensor.shape) for name, tensor in weights.items()}, where)
    for name, tensor in own.items():
        check_weight(name, weights[name], tensor.dtype, where)


def check_shapes(own: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Refuse names and shapes that do not match a model's."""
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
    """Replace parameters by other values inside the block."""
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
    """Average the weights of several checkpoints, in double precision until the end."""
    return {
        name: (sum(each[name].double() for each in weights) / len(weights)).to(first.dtype)  # type: ignore[union-attr]
        for name, first in weights[0].items()
    }
