"""Regard: sequence-to-sequence models with attention, every mechanism behind one interface.

Each name below is imported when it is first used, so that `import regard` is instant and does not import torch.
"""

import typing as _typing

from regard.door import door as _door

if _typing.TYPE_CHECKING:
    from regard.attention import Attention, Block, Decoder, Encoder, Heads, Learned, Look, use_backend, watch
    from regard.errors import RegardError
    from regard.interop import export_model, import_model
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


__getattr__, __dir__ = _door(__name__)
