"""Configurations: they stand together, import no torch, and say what suits a corpus."""

import dataclasses
import subprocess
import sys

import pytest

from regard.errors import ConfigError
from regard.models.config import CaptionerConfig, ModelConfig
from regard.models.kinds import KINDS, build, read_model_config

SILENT = "import importlib, sys; importlib.import_module({!r}); assert 'torch' not in sys.modules"


@pytest.mark.parametrize("module", ["regard.models.kinds", "regard.models.config"])
def test_importing_a_configuration_imports_no_torch(module):
    subprocess.run([sys.executable, "-c", SILENT.format(module)], check=True)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_configuration_has_the_name_of_its_model(kind):
    assert kind.config.__module__ == "regard.models.config"
    assert kind.model_class.rpartition(".")[0] == f"regard.models.{kind.name}"
    assert kind.config.__name__.removesuffix("Config").lower() == kind.name
    assert (
        type(build(kind.name, kind.config(), 20, 20)).__name__ == f"{kind.config.__name__.removesuffix('Config')}Model"
    )


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("long_lines", [False, True])
def test_what_suits_a_corpus_is_a_configuration(kind, long_lines, joint):
    options = kind.config.choose(long_lines, joint)
    assert options == {name: getattr(kind.config(**options), name) for name in options}


def test_only_stacks_of_blocks_have_options_to_choose():
    assert [name for name, kind in KINDS.items() if kind.config.choose(False, False)] == ["transformer", "encoder"]
    choose = KINDS["transformer"].config.choose
    assert choose(False, True) == {"positions": "rotary", "norm": "pre", "attention_dropout": 0.1, "tied": "all"}
    assert choose(True, False) == {"positions": "sinusoidal", "norm": "pre", "attention_dropout": 0.1, "tied": "output"}
    assert KINDS["encoder"].config.choose(True, True)["positions"] == "sinusoidal"


def test_wide_transformers_learn_at_a_lower_rate():
    config = KINDS["transformer"].config
    assert (config(size=508).suitable_rate(), config(size=512).suitable_rate()) == (None, 7e-4)
    assert ModelConfig().suitable_rate() is None


def test_a_backbone_of_another_library_is_counted_as_the_own_one():
    config = KINDS["captioner"].config(backbone="timm:resnet18", weights="w.pt", frozen=True, size=32)
    assert config.self_contained() == dataclasses.replace(config, backbone="resnet", weights=None, frozen=False)
    own = KINDS["captioner"].config(weights="w.pt")
    assert own.self_contained() is own


# ---- options of a captioner that cannot be met


def test_what_a_transformer_cannot_be_is_refused():
    with pytest.raises(ConfigError, match='expected "soft"'):
        CaptionerConfig(decoder="transformer", attention="hard")
    with pytest.raises(ConfigError, match='expected "soft"'):
        CaptionerConfig(decoder="transformer", attention="straight-through")
    with pytest.raises(ConfigError, match="tau"):
        read_model_config({"kind": "captioner", "attention": "straight-through", "tau": 0})
