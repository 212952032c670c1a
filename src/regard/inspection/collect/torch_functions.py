"""A classification of torch's functions for graphs: those that move numbers about, join them, or compute new ones."""

import math
from collections.abc import Iterator
from types import CodeType
from typing import Any

from torch import Tensor

# fmt: off
# They move numbers about, or say where numbers are, and compute none.
STRUCTURAL = {
    "__getitem__", "__setitem__", "__get__", "__len__", "__contains__", "__bool__", "__reversed__", "__iter__",
    "view", "view_as", "reshape", "reshape_as", "transpose", "swapaxes", "permute", "movedim", "unbind", "chunk",
    "split", "tensor_split", "stack", "expand", "expand_as", "contiguous", "to", "float", "double", "half",
    "bfloat16", "type", "type_as", "long", "int", "bool", "detach", "clone", "flatten", "unflatten", "squeeze",
    "unsqueeze", "index_select", "select", "narrow", "gather", "take_along_dim", "masked_fill", "masked_fill_",
    "masked_scatter", "masked_scatter_", "masked_select", "where", "pad", "roll", "flip", "copy_", "fill_", "zero_",
    "repeat", "repeat_interleave", "tile", "t", "mT", "T", "clamp", "clamp_", "clip", "nan_to_num", "dropout",
    "unfold", "index_copy", "index_copy_", "index_put_", "index_fill_", "scatter", "scatter_", "numel", "size",
    "dim", "item", "tolist", "cpu", "cuda", "requires_grad_", "set_", "resize_", "broadcast_to", "broadcast_tensors",
    "meshgrid", "hstack", "vstack", "as_strided", "diagonal", "tril", "triu", "numpy", "data_ptr",
}
CREATORS = {
    "new_zeros", "new_full", "new_ones", "new_empty", "new_tensor", "zeros_like", "ones_like", "empty_like",
    "full_like",
}  # of their argument they take the dtype, the device or the shape
ELEMENTWISE = {
    "add", "sub", "rsub", "mul", "div", "true_divide", "__add__", "__radd__", "__iadd__", "__sub__", "__rsub__",
    "__isub__", "__mul__", "__rmul__", "__imul__", "__truediv__", "__rtruediv__", "__itruediv__", "add_", "sub_",
    "mul_", "div_", "multiply",
}
# fmt: on
FIRST_ALONE = {"to", "type_as", "view_as", "expand_as", "reshape_as"}  # of the second they take dtype or shape


def is_structural(name: str) -> bool:
    """Return whether a torch function only moves numbers about."""
    return name in STRUCTURAL


def is_function(code: CodeType, package: str) -> bool:
    """Return whether code is a named function of a library other than torch, and not a lambda or the like."""
    return not code.co_name.startswith("<") and package.partition(".")[0] not in ("torch", "jaxtyping", "contextlib")


def scalar_in(arguments: list[Any]) -> str | None:
    """Find the number that a tensor is, say, multiplied by, where it is not 1; a root is written as a root."""
    for value in arguments[0]:
        if isinstance(value, int | float) and not isinstance(value, bool) and value not in (0, 1):
            square = value * value
            if not float(value).is_integer() and math.isclose(square, round(square), rel_tol=1e-6):
                return f"√{round(square)}"
            return f"{value:.4g}"
    return None


def is_in_place(name: str, options: dict[str, Any]) -> bool:
    """Return whether a torch function writes into a tensor that was there before."""
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or "out" in options


def tensors_in(value: Any) -> Iterator[Tensor]:
    """List the tensors in nested arguments."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def shape_of_whole(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor, or of the one that it is a view of."""
    return tuple((tensor if tensor._base is None else tensor._base).shape)


def storage_of(tensor: Tensor) -> int:
    """Return the address of a tensor's storage, which views share."""
    return tensor.untyped_storage().data_ptr()
