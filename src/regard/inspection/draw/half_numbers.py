"""The numbers behind views as a page holds them: in half precision, and as many as there is room for.

A tensor is two planes of bytes, the high ones first, which deflate better than pairs.
"""

# h heads · n rows · m columns or width
import zlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from regard.inspection.collect.exhibit import Addressing, Numbers, View

SMALL = ("vector", "scores", "bias", "gate", "weights", "query", "keys")  # what weights are computed from
ORDER = {"cross": 0, "words": 1, "sentences": 1}  # which views come first where not all have room


def pack_numbers(views: Sequence[tuple[dict[str, Any], View, bool]], packed: bytearray, room: int) -> None:
    """Add to each view's table what it is computed from, while the deflated bytes fit in `room`.

    `views` are tables and views, with whether the page begins with that view. First come the parts that weights are
    computed from, then the values; the table says what was left out.
    """
    queue = sorted(
        ((table, view.numbers, first, ORDER.get(view.role, 2)) for table, view, first in views if view.numbers),
        key=lambda each: (not each[2], each[3]),
    )
    for table, numbers, _, _ in queue:
        table["numbers"] = describe(numbers)
    for values in (False, True):
        for table, numbers, _, _ in queue:
            parts = list_parts(numbers, values)
            described = table["numbers"]
            halves = {name: half_planes(tensor) for name, tensor in parts.items()}
            if any(planes is None for planes in halves.values()):
                described["left"] = "range"
                continue
            if values and described["left"]:
                continue
            arrays = [(name, planes, tuple(parts[name].shape)) for name, planes in halves.items() if planes is not None]
            if isinstance(numbers, Numbers) and not values and numbers.mask is not None:
                arrays.append(("mask", numbers.mask.to(torch.uint8).numpy().ravel(), tuple(numbers.mask.shape)))
            size = sum(len(zlib.compress(planes.tobytes(), 9)) for _, planes, _ in arrays)
            if size > room:
                described["left"] = "values" if values else "size"
                continue
            room -= size
            for name, planes, shape in arrays:
                # Of a vector that each head has one of, the heads come first all the same.
                whole = [shape[0], 1, shape[1]] if len(shape) == 2 else list(shape)
                described["parts"][name] = {"at": len(packed), "shape": whole}
                packed += planes.tobytes()


def list_parts(numbers: Numbers | Addressing, values: bool) -> dict[str, Tensor]:
    """The tensors of numbers that are there: the values, or what weights are computed from."""
    if isinstance(numbers, Addressing):
        names = [] if values else [field.name for field in fields(Addressing)]
    else:
        names = ["values"] if values else list(SMALL)
    return {name: tensor for name in names if (tensor := getattr(numbers, name)) is not None}


def describe(numbers: Numbers | Addressing) -> dict[str, Any]:
    """Describe the numbers without their tensors: how they are scored and scaled, and by which formulas."""
    if isinstance(numbers, Addressing):
        return {"score": "memory", "parts": {}, "left": ""}
    return {
        "score": numbers.score,
        "scale": numbers.scale,
        "temperature": numbers.temperature,
        "groups": numbers.groups,
        "formulas": numbers.formulas,
        "parts": {},
        "left": "",
    }


def half_planes(tensor: Tensor) -> UInt8[np.ndarray, " bytes"] | None:
    """The high bytes of half-precision numbers, then the low ones; None where a number is too large for that."""
    halves = tensor.detach().cpu().half()
    if not bool(halves.isfinite().all()):
        return None
    pairs = np.ascontiguousarray(halves.numpy().astype("<f2")).reshape(-1).view(np.uint8).reshape(-1, 2)
    return np.concatenate([pairs[:, 1], pairs[:, 0]])
