"""Models: every sequence-to-sequence architecture of the lineage, on one contract.

`kinds` lists them with their papers and options and imports no torch; `build` makes one.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.models import config as model_config
    from regard.models import kinds
    from regard.models.captioner.config import CaptionerConfig
    from regard.models.captioner.model import CaptionerModel
    from regard.models.config import ModelConfig
    from regard.models.contract import Documents, Memory, Model, Pictures, Reinforcement, Source, Tokens
    from regard.models.convnet.model import ConvNetModel
    from regard.models.kinds import KINDS, Kind, build, find_kind, read_model_config
    from regard.models.layers.cells import Dropout, Layer
    from regard.models.layers.memory_heads import Machine, MemoryHeads, shift_weights
    from regard.models.lstmn.model import Tapes
    from regard.models.notation import Reading
    from regard.models.rnn.config import RNNConfig
    from regard.models.rnnsearch.config import RNNSearchConfig
    from regard.models.transformer.config import TransformerConfig
    from regard.models.transformer.model import TransformerModel
    from regard.models.weights import FLOATS, check_weight, read_weights

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

__getattr__, __dir__ = door(
    __name__,
    {
        "rnn.config": "RNNConfig",
        "captioner.model": "CaptionerModel",
        "captioner.config": "CaptionerConfig",
        "config": "ModelConfig =model_config",
        "contract": "Documents Memory Model Pictures Reinforcement Source Tokens",
        "convnet.model": "ConvNetModel",
        "kinds": "KINDS Kind build find_kind read_model_config =kinds",
        "layers.cells": "Dropout Layer",
        "layers.memory_heads": "Machine MemoryHeads shift_weights",
        "lstmn.model": "Tapes",
        "notation": "Reading",
        "rnnsearch.config": "RNNSearchConfig",
        "transformer.config": "TransformerConfig",
        "transformer.model": "TransformerModel",
        "weights": "FLOATS check_weight read_weights",
    },
)
