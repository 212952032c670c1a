"""Options of a captioner that cannot be met."""

import pytest

from regard.errors import ConfigError
from regard.models.config import CaptionerConfig
from regard.models.kinds import read_model_config


def test_what_a_transformer_cannot_be_is_refused():
    with pytest.raises(ConfigError, match='expected "soft"'):
        CaptionerConfig(decoder="transformer", attention="hard")
    with pytest.raises(ConfigError, match='expected "soft"'):
        CaptionerConfig(decoder="transformer", attention="straight-through")
    with pytest.raises(ConfigError, match="tau"):
        read_model_config({"kind": "captioner", "attention": "straight-through", "tau": 0})
