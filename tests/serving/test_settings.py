"""The settings of a server: each has its help and its limits, and torch is not imported for them."""

import dataclasses
import subprocess
import sys

import pytest

from regard.config import parse
from regard.errors import ConfigError
from regard.serving.settings import ServeSettings


def test_the_limits_are_those_that_are_promised():
    settings = ServeSettings()
    assert (settings.host, settings.port, settings.device, settings.precision) == ("127.0.0.1", 8080, "auto", "auto")
    assert (settings.characters, settings.texts, settings.body_bytes) == (20_000, 128, 2**20)
    assert (settings.picture_bytes, settings.look_words, settings.waiting) == (10 * 2**20, 200, 512)
    assert (settings.seconds, settings.grace) == (30.0, 20.0)
    assert (settings.keys, settings.rate, settings.hosts, settings.origins) == (None, 0, (), ())
    assert settings.log_texts is False


@pytest.mark.parametrize("field", dataclasses.fields(ServeSettings), ids=lambda field: field.name)
def test_every_setting_has_help_and_numbers_have_limits(field):
    assert field.metadata["help"]
    if isinstance(field.default, bool) or not isinstance(field.default, int | float):
        return
    assert "most" in field.metadata
    assert {"least", "above"} & field.metadata.keys()
    parse(ServeSettings, {field.name: field.metadata["most"]})
    for value in (field.metadata["most"] + 1, -1):
        with pytest.raises(ConfigError, match=f"{field.name}: .* given, expected"):
            parse(ServeSettings, {field.name: value})


def test_they_can_be_read_without_torch():
    code = "import sys, regard.serving.settings; sys.exit('torch' in sys.modules or 'fastapi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
