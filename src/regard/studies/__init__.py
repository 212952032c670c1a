"""Studies stand in `regard_studies`: what older plugins import from here is forwarded, with one warning."""

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def forward(old: str, new: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that was moved."""
    warned: list[str] = []

    def load(name: str) -> Any:
        value = getattr(importlib.import_module(new), name)
        if not warned:
            warned.append(name)
            warnings.warn(f"{old} is now {new}: import {name} from there", DeprecationWarning, stacklevel=2)
        return value

    return load


__getattr__ = forward(__name__, "regard_studies")
