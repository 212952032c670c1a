"""Every error that Regard raises on purpose. Catch `RegardError` to catch them all.

RegardError
├── ArgumentError (also a ValueError)   an argument that cannot be served; names it, what came, what was expected
│   ├── ShapeError                      a width, a length or a number of dimensions
│   ├── DtypeError                      a dtype, or two that do not go together
│   └── DeviceError                     tensors on different devices
├── BackendError                        a backend was forced that cannot serve the call
├── WatchError                          something was asked of `watch` that it cannot answer truthfully
├── MissingExtraError                   an optional dependency is not installed; names the extra
└── CommandError                        a person's mistake on the command line; exit status 2
"""

__all__ = [
    "ArgumentError",
    "BackendError",
    "CommandError",
    "DeviceError",
    "DtypeError",
    "MissingExtraError",
    "RegardError",
    "ShapeError",
    "WatchError",
]


class RegardError(Exception):
    """The root of the tree."""


class ArgumentError(RegardError, ValueError):
    """An argument that cannot be served."""


class ShapeError(ArgumentError):
    """A width, a length or a number of dimensions that does not fit."""


class DtypeError(ArgumentError):
    """A dtype that cannot be used, or two that do not go together."""


class DeviceError(ArgumentError):
    """Tensors on different devices."""


class BackendError(RegardError):
    """A backend was forced that cannot serve the call."""


class WatchError(RegardError):
    """Something was asked of `watch` that it cannot answer truthfully."""


class MissingExtraError(RegardError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str):
        super().__init__(f"{package} is not installed; install it with: pip install 'regard[{extra}]'")


class CommandError(RegardError):
    """A person's mistake on the command line."""
