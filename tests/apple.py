"""A stand-in for Apple's GPU: tensors that report the device `mps` and are as strict as it is, as far as we know.

No test machine has such a GPU. The operations run on the CPU; the stand-in checks that no tensor there is float64 and
that host tensors are not mixed with device tensors.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("mps", 0)
ACROSS = {"_to_copy", "copy_", "index", "index_put_", "index_put", "_index_put_impl_", "lift_fresh"}  # take both


class OnApple(torch.Tensor):
    """A tensor that is stored on the host and reports that it is on the GPU."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "OnApple":
        if inner.dtype in (torch.float64, torch.complex128):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64")
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device("cpu"),  # for C++, which would otherwise load a library that only Apple has
        )
        made.inner = inner
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Return the device that the tensor reports."""
        return DEVICE

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return served(func, args, kwargs or {})


class Dispatch(TorchDispatchMode):
    """Within this mode, tensors can be created on the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return served(func, args, kwargs or {})


class Moved(TorchFunctionMode):
    """Within this mode, tensors move between the host and the device, which C++ takes for the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], OnApple) and func in (torch.Tensor.numpy, torch.Tensor.__array__):
            raise TypeError("can't convert mps:0 device type tensor to numpy")
        if args and isinstance(args[0], OnApple) and func is torch.Tensor.tolist:
            return args[0].inner.tolist()
        if func is torch.Tensor.cpu:
            func, args = torch.Tensor.to, (args[0], "cpu")
        if func is torch.Tensor.to and isinstance(args[0], OnApple):
            device, dtype, _, _ = torch._C._nn._parse_to(*args[1:], **kwargs) if not to_tensor(args) else like(args[1])
            if device is not None and device.type == "cpu":
                return torch.ops.aten._to_copy.default(args[0], device=device, dtype=dtype or args[0].dtype)
            return args[0] if dtype in (None, args[0].dtype) else args[0].type(dtype)
        if func in (torch.tensor, torch.as_tensor) and numbered(kwargs.get("device")) == DEVICE:
            return func(*args, **{**kwargs, "device": "cpu"}).to(DEVICE)
        args = tuple(numbered(each) for each in args)
        return func(*args, **{name: numbered(each) for name, each in kwargs.items()})


def to_tensor(args: Any) -> bool:
    return len(args) > 1 and isinstance(args[1], torch.Tensor)


def like(other: torch.Tensor) -> tuple[torch.device, torch.dtype, bool, None]:
    return other.device, other.dtype, False, None


def numbered(each: Any) -> Any:
    """Return `mps` with its index: a torch built without it raises an error when asked for the current device."""
    return DEVICE if isinstance(each, str | torch.device) and str(each) == "mps" else each


@contextlib.contextmanager
def apple() -> Iterator[None]:
    """Provide an Apple GPU within this context."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)  # moved weights are of this class and stay tied
    try:
        with Dispatch(), Moved():
            yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def served(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the host for tensors that report to be on the GPU."""
    given = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
    there = [each for each in given if isinstance(each, OnApple)]
    name = func._schema.name.partition("::")[2]
    asked = kwargs.get("device")
    on_apple = torch.device(asked).type == "mps" if asked is not None else bool(there)
    if there and name not in ACROSS:
        for each in given:
            if not isinstance(each, OnApple) and each.ndim:
                raise RuntimeError(f"{name}: expected all tensors to be on the same device, found mps:0 and cpu")
    if name == "copy_":
        on_apple = isinstance(args[0], OnApple)
    if asked is not None and on_apple:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    known = {id(each.inner): each for each in there}
    result = func(
        *tree_map(lambda each: each.inner if isinstance(each, OnApple) else each, args),
        **tree_map(lambda each: each.inner if isinstance(each, OnApple) else each, kwargs),
    )

    def wrapped(each: Any) -> Any:
        if not isinstance(each, torch.Tensor):
            return each
        if id(each) in known:  # written in place
            return known[id(each)]
        return OnApple(each) if on_apple else each

    return tree_map(wrapped, result)
