"""Doors: the public names of a package, each imported from its module when it is first used.

    __all__ = ["Batch", "collate", "languages"]
    __getattr__, __dir__ = door(__name__, {"batching": "Batch collate", "languages": "=languages"})

A door lists its names three times: for type checkers in imports under TYPE_CHECKING, for readers in `__all__`, and by
their modules; a test compares the three. So `import regard.data` loads no torch, and no circle of packages is closed
before it is needed. A name after "=" is that of the module itself.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["door", "forward"]


def door(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package: `homes` names its modules, and what comes from each."""
    home_of = {name.lstrip("="): (home, name[0] != "=") for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, is_inside = home_of[name]
        module = importlib.import_module(home if home.startswith("regard.") else f"{package}.{home}")
        value = vars(sys.modules[package])[name] = getattr(module, name) if is_inside else module
        return value

    return load, lambda: list(sys.modules[package].__all__)


def forward(old: str, new: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that was moved: its names come from the new one, with one warning."""
    warned: list[str] = []

    def load(name: str) -> Any:
        value = getattr(importlib.import_module(new), name)
        if not warned:
            warned.append(name)
            warnings.warn(f"{old} is now {new}: import {name} from there", DeprecationWarning, stacklevel=2)
        return value

    return load
