"""Models: sequence-to-sequence architectures from the RNN encoder-decoder to the Transformer, behind one interface.

`kinds` and `KINDS` list every kind with its paper and options, without importing torch; `build` makes a model.
`ModelConfig` and its subclasses hold the options. `Model`, `Memory`, `Tokens`, `Pictures` and `Documents` are the
contract. Some models and layers can be used on their own. `read_weights` and `check_weight` read and check weights.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.models import config as model_config
    from regard.models import kinds
    from regard.models.captioner import CaptionerModel
    from regard.models.config import CaptionerConfig, ModelConfig, RNNConfig, RNNSearchConfig, TransformerConfig
    from regard.models.contract import (
        FLOATS,
        Documents,
        Memory,
        Model,
        Notation,
        Pictures,
        Reading,
        Reinforcement,
        Source,
        Tokens,
        check_weight,
        read_weights,
    )
    from regard.models.convnet import ConvNetModel
    from regard.models.kinds import KINDS, Kind, build, find_kind, read_model_config
    from regard.models.lstmn import Tapes
    from regard.models.ntm import Machine, MemoryHeads, shift_weights
    from regard.models.recurrent import Dropout, Layer
    from regard.models.transformer import TransformerModel

__all__ = [
    "CaptionerConfig",
    "CaptionerModel",
    "ConvNetModel",
    "Documents",
    "Dropout",
    "FLOATS",
    "KINDS",
    "Kind",
    "Layer",
    "Machine",
    "Memory",
    "MemoryHeads",
    "Model",
    "ModelConfig",
    "Notation",
    "Pictures",
    "RNNConfig",
    "RNNSearchConfig",
    "Reading",
    "Reinforcement",
    "Source",
    "Tapes",
    "Tokens",
    "TransformerConfig",
    "TransformerModel",
    "build",
    "check_weight",
    "find_kind",
    "kinds",
    "model_config",
    "read_model_config",
    "read_weights",
    "shift_weights",
]

__getattr__, __dir__ = door(__name__)
