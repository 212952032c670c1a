"""Weights from a safetensors file, into a model (one that is missing, misshapen or not finite is named), and averaged.

A file's heading is checked before its tensors are made: what it says must fill the file, no more and no less.
"""

import contextlib
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.io import packs, reading
from regard.models import check_weight

HEADING = 16 * 2**20  # bytes of a safetensors file's heading, at most
TENSORS = 100_000  # in a file, at most
NAME = 500  # characters of a tensor's name
DIMENSIONS = 8
# What safetensors calls the dtypes that weights, the optimiser's state and generators have, and their bytes.
DTYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "C64": 8}


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
    try:
        parse_shapes(content, len(content))
        return load(content)
    except reading.Unreadable as error:
        raise CheckpointError(f"{path}: not a safetensors file ({error})") from None
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path}: not a safetensors file ({str(error).splitlines()[0]})") from None


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read the shapes of a safetensors file's tensors from its header alone."""
    try:
        with packs.open_binary(path) as (file, size):
            length = int.from_bytes(file.read(8), "little")
            content = length.to_bytes(8, "little") + file.read(min(length, HEADING))
        return parse_shapes(content, size)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except reading.Unreadable as error:
        raise CheckpointError(f"{path}: not a safetensors file ({error})") from None


def parse_shapes(content: bytes, size: int) -> dict[str, tuple[int, ...]]:
    """Parse the shapes in a header, if its tensors fill a file of this size; else raise Unreadable."""
    length = int.from_bytes(content[:8], "little")
    if size < 8 or length > min(size - 8, HEADING):
        raise reading.Unreadable(f"its header claims {length:,} bytes, expected at most {min(size, HEADING):,}")
    table = reading.parse_json(content[8 : 8 + length])
    if not isinstance(table, dict) or len(table) > TENSORS:
        raise reading.Unreadable(f"expected a table of at most {TENSORS:,} tensors")
    shapes, parts = {}, []
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        if len(name) > NAME or not name.isprintable():  # it is said in errors
            raise reading.Unreadable(f"a tensor's name is longer than {NAME} characters, or not printable")
        shape, (start, end), width = check_entry(name, entry)
        if math.prod(shape) * width != end - start:
            raise reading.Unreadable(f"tensor {name} does not have as many bytes as its shape and dtype need")
        shapes[name] = shape
        parts.append((start, end))
    at = 0
    for start, end in sorted(parts):
        if start != at:
            raise reading.Unreadable("its tensors overlap, or leave a gap")
        at = end
    if at != size - 8 - length:
        raise reading.Unreadable("its tensors do not fill it")
    return shapes


def check_entry(name: str, entry: Any) -> tuple[tuple[int, ...], tuple[int, int], int]:
    """Check a tensor's entry in a header: its shape, where it begins and ends, and the bytes of a number."""

    def counts(value: Any, most: int) -> bool:
        right = isinstance(value, list) and len(value) <= most
        return right and all(type(each) is int and 0 <= each < 2**62 for each in value)

    if not isinstance(entry, dict) or not counts(entry.get("shape"), DIMENSIONS):
        raise reading.Unreadable(f"tensor {name} has no shape")
    if not counts(entry.get("data_offsets"), 2) or len(entry["data_offsets"]) != 2:
        raise reading.Unreadable(f"tensor {name} has no place in it")
    dtype = entry.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise reading.Unreadable(f"tensor {name} is of dtype {str(dtype)[:20]}, expected one of {', '.join(DTYPES)}")
    start, end = entry["data_offsets"]
    return tuple(entry["shape"]), (start, end), DTYPES[dtype]


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


class MovingAverage:
    r"""An exponential moving average: $\bar\theta \leftarrow \beta \bar\theta + (1 - \beta) \theta$ after every step.

    Early on β is smaller, (1 + t) / (10 + t), so that the first weights are soon forgotten.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], decay: float):
        self.decay = decay
        self.values = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def update(self, parameters: Sequence[nn.Parameter], step: int) -> None:
        """Update the average with the weights after a step, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.values, [parameter.detach() for parameter in parameters], 1 - decay)

    @contextlib.contextmanager
    def swap_in(self, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """Replace the parameters by their averages inside the block."""
        saved = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            for parameter, value in zip(parameters, self.values, strict=True):
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
