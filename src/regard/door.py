"""Doors: packages whose public names are imported from their modules on first use.

    if TYPE_CHECKING:
        from regard.data import languages
        from regard.data.batching import Batch, collate

    __all__ = ["Batch", "collate", "languages"]
    __getattr__, __dir__ = door(__name__)

A door lists its names twice: in `__all__`, for readers, and in imports under TYPE_CHECKING, which `door` parses when
the first name is used. A test compares the two lists. This way `import regard.data` does not import torch, and packages
that import each other cause no circular import.
"""

import functools
import importlib
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["door", "forward"]

IMPORT = re.compile(r"^    from ([\w.]+) import (\([^)]*\)|.+)$", re.MULTILINE)  # under TYPE_CHECKING


def door(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package, from the imports under TYPE_CHECKING in its source."""
    this = sys.modules[package]

    @functools.cache
    def homes() -> dict[str, tuple[str, str]]:
        """Return, for each public name, its module and its name there."""
        source = this.__spec__.loader.get_source(package)  # type: ignore[union-attr]
        found = {}
        for home, names in IMPORT.findall(source.partition("TYPE_CHECKING:\n")[2].partition("\n__all__")[0]):
            for each in filter(None, map(str.strip, names.strip("()").split(","))):
                inner, _, outer = each.partition(" as ")
                found[outer or inner] = home, inner
        return found

    def load(name: str) -> Any:
        if name not in this.__all__ or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, inner = homes()[name]
        if home == package or not hasattr(importlib.import_module(home), inner):  # a module
            value = importlib.import_module(f"{home}.{inner}")
        else:
            value = getattr(sys.modules[home], inner)
        vars(this)[name] = value
        return value

    return load, lambda: list(this.__all__)


def forward(old: str, new: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a moved module, which takes names from the new one and warns once."""
    warned: list[str] = []

    def load(name: str) -> Any:
        value = getattr(importlib.import_module(new), name)
        if not warned:
            warned.append(name)
            warnings.warn(f"{old} is now {new}: import {name} from there", DeprecationWarning, stacklevel=2)
        return value

    return load
