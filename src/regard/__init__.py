"""Regard: sequence-to-sequence models with attention, every mechanism behind one interface.

The names below are loaded when they are first used, so that `import regard` is instant and torch comes only with them.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from regard.attention import Attention, Block, Decoder, Encoder, Heads, Learned, Look, use_backend, watch
    from regard.errors import RegardError
    from regard.interop.export import export_model
    from regard.interop.importing import import_model
    from regard.plugins import register
    from regard.report import train
    from regard.run import Run, load

__version__ = "0.1.0"

__all__ = [
    "Attention",
    "Block",
    "Decoder",
    "Encoder",
    "Heads",
    "Learned",
    "Look",
    "RegardError",
    "Run",
    "__version__",
    "export_model",
    "import_model",
    "load",
    "register",
    "train",
    "use_backend",
    "watch",
]


def __getattr__(name: str) -> _typing.Any:
    if name not in __all__:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    homes = {"RegardError": "errors", "Run": "run", "load": "run", "register": "plugins", "train": "report"}
    homes |= {"export_model": "interop.export", "import_model": "interop.importing"}
    home = f"regard.{homes.get(name, 'attention')}"
    value = globals()[name] = getattr(_importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
