"""Checks of arguments: each error names the argument, its value and what was expected."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, DeviceError, DtypeError, ShapeError


def check_positive(**sizes: int) -> list[int]:
    """Return the sizes; raise ArgumentError unless each is a whole number of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ArgumentError(f"{name}: {size!r} given, expected a whole number of at least 1")
    return list(sizes.values())


def check_radius(radius: int, least: int) -> int:
    """Return the radius; raise ArgumentError unless it is a whole number of at least `least`."""
    if isinstance(radius, bool) or not isinstance(radius, int) or radius < least:
        raise ArgumentError(f"radius: {radius!r} given, expected a whole number of at least {least}")
    return radius


def check_start(start: int | Tensor) -> int | Tensor:
    """Return the start; raise DtypeError unless it is a whole number or a tensor of them."""
    if (
        isinstance(start, bool)
        or not isinstance(start, (int, Tensor))
        or (isinstance(start, Tensor) and (start.is_floating_point() or start.dtype == torch.bool))
    ):
        actual = start.dtype if isinstance(start, Tensor) else repr(start)
        raise DtypeError(f"start: {actual} given, expected a whole number or a tensor of them, one per row")
    return start


def check_offsets(
    name: str, offsets: Tensor | Sequence[int], sizes: tuple[int, int] | None
) -> tuple[Tensor, tuple[int, int]]:
    """Return the offsets as a tensor, and (number of tokens, longest sequence), read from them only if not given."""
    if sizes is not None and isinstance(offsets, Tensor):
        return offsets, sizes
    tensor = offsets if isinstance(offsets, Tensor) else torch.tensor(offsets)
    if tensor.ndim != 1 or len(tensor) < 2 or tensor.is_floating_point():
        raise ShapeError(
            f"{name}: {list(tensor.shape)} of {tensor.dtype} given, expected [sequences + 1] whole numbers"
        )
    host = tensor.tolist()
    if host[0] != 0 or any(a > b for a, b in pairwise(host)):
        raise ArgumentError(f"{name}: {host if len(host) < 9 else host[:8]} given, expected numbers that ascend from 0")
    return tensor.long(), (host[-1], max(b - a for a, b in pairwise(host)))


def check_alike(**tensors: Tensor) -> None:
    """Raise unless all tensors are floating point, on one device, and of one dtype or ones that autocast unifies."""
    (first_name, first), *others = tensors.items()
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise DtypeError(f"{name}: {tensor.dtype} given, expected a floating-point tensor")
    for name, tensor in others:
        if tensor.device != first.device:
            raise DeviceError(f"{name}: on {tensor.device}, expected {first.device}, the device of {first_name}")
        if tensor.dtype != first.dtype and not torch.is_autocast_enabled(first.device.type):
            raise DtypeError(f"{name}: {tensor.dtype} given, expected {first.dtype}, the dtype of {first_name}")


def check_parameters(module: nn.Module, **tensors: Tensor) -> None:
    """Raise if a tensor's device or dtype differs from that of the module's parameters."""
    like = next(module.parameters(), None)
    if like is None:
        return
    for name, tensor in tensors.items():
        if tensor.device != like.device:
            raise DeviceError(f"{name}: on {tensor.device}, expected {like.device}, where the module is")
        if tensor.dtype != like.dtype and not torch.is_autocast_enabled(tensor.device.type):
            raise DtypeError(f"{name}: {tensor.dtype} given, expected {like.dtype}, the dtype of the module")


def check_rows(**tensors: Tensor) -> None:
    """Raise ShapeError for tensors of fewer than two dimensions: a single query is one row."""
    for name, tensor in tensors.items():
        if tensor.ndim < 2:
            alone = f"; for a single vector give {name}[None]" if tensor.ndim == 1 else ""
            raise ShapeError(f"{name}: {list(tensor.shape)} given, expected at least two dimensions{alone}")


def check_shapes(query: Tensor, keys: Tensor, values: Tensor) -> None:
    """Raise ShapeError unless there is a key, each key has a value, and leading dimensions broadcast."""
    check_rows(query=query, keys=keys, values=values)
    if keys.shape[-2] == 0:
        raise ShapeError(f"keys: {list(keys.shape)} given, expected at least one key (mark padding with Lengths)")
    if values.shape[-2] != keys.shape[-2]:
        raise ShapeError(f"values: {values.shape[-2]} given, expected one per key, {keys.shape[-2]}")
    for name, tensor in (("keys", keys), ("values", values)):
        if any(
            a != b and 1 not in (a, b)
            for a, b in zip(reversed(tensor.shape[:-2]), reversed(query.shape[:-2]), strict=False)
        ):
            lead, expected = list(tensor.shape[:-2]), list(query.shape[:-2])
            raise ShapeError(f"{name}: leading dimensions {lead} given, expected the query's, {expected}")


def check_dropout(dropout: float) -> float:
    """Return the probability; raise ArgumentError unless it is at least 0 and below 1."""
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout: {dropout!r} given, expected a number from 0 up to, not including, 1")
    return float(dropout)


def check_type(name: str, value, kind: type):  # type: ignore[no-untyped-def]
    """Return the value; raise ArgumentError unless it is a `kind`. A span or a query may be None."""
    if not isinstance(value, kind) and not (value is None and name in ("span", "query")):
        raise ArgumentError(f"{name}: {type(value).__name__} given, expected a {kind.__name__}")
    return value
