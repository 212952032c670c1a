"""The whole of a configuration."""

import pytest

from regard.errors import ConfigError
from regard.models.kinds import KINDS
from regard.training.settings import base_table, read_settings


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("preset", [None, "tiny", "small", "base", "big"])
def test_the_table_of_settings_gives_the_settings(kind, preset):
    task = "language-model" if kind == "encoder" else "translate"
    table = {"task": task, "model": {"kind": kind, **({"preset": preset} if preset else {})}}
    settings = read_settings(table)
    assert read_settings(settings.table()) == settings
    assert settings.training.metric == ("loss" if kind == "encoder" else "bleu")


def test_nothing_given_is_a_transformer():
    assert read_settings({}).kind == "transformer"


def test_what_goes_from_run_to_run():
    table = read_settings({}).table()
    assert base_table(table, {}, "runs/a").keys() == {"task", "model", "tokenizer"}
    assert base_table(table, table, "runs/a") == base_table(table, {}, "runs/a")
    with pytest.raises(ConfigError, match="model: that of runs/a is taken"):
        base_table(table, {"model": {"kind": "rnn"}}, "runs/a")
