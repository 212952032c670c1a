"""Configurations: they are consistent, import no torch, and choose suitable values for a corpus."""

import dataclasses
import subprocess
import sys

import pytest

from regard.errors import ConfigError
from regard.models.config import ModelConfig
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


ODD = "expected an even width"
BLOCKS = 'true given with encoder = "{}", which reads all words at once'
REFUSED = [
    ("rnn", {"context": "start", "start": "zero"}, "start: zero given"),
    *(
        (kind, {"encoder": "self-attention", "size": 6, "heads": 4}, "heads: 6 is not")
        for kind in ("rnnsearch", "luong")
    ),
    *((kind, {"reach": 2}, "reach: 2 given") for kind in ("rnnsearch", "luong")),
    *((kind, {"encoder": "self-attention", "reach": 2}, "reach: 2 given") for kind in ("rnnsearch", "luong")),
    *(
        ("luong", {"encoder": encoder, "size": 8, key: True}, f"{key}: {BLOCKS.format(encoder)}")
        for encoder in ("convolution", "self-attention")
        for key in ("bidirectional", "reverse")
    ),
    ("luong", {"score": "location", "span": "local-m"}, "global only"),
    ("luong", {"bidirectional": True, "size": 5}, ODD),
    ("pointer", {"bidirectional": True, "size": 5}, ODD),
    ("ntm", {"slots": 4, "shift": 2}, "less than half"),
    ("transformer", {"score": "additive", "scaled": False}, "scaled: false given"),
    ("transformer", {"positions": "rotary", "depth": 3}, "3 is odd"),
    *(
        ("transformer", {"positions": each, "sines": "halves"}, f'sines: halves given with positions = "{each}"')
        for each in ("learned", "rotary", "alibi", "none")
    ),
    ("transformer", {"fixed_bias": True, "output_bias": False}, "fixed_bias: true given with output_bias = false"),
    *((kind, {"activation": "silu", "feed_forward": False}, "silu given with") for kind in ("transformer", "encoder")),
    *((kind, {"activation": "swish"}, "activation: .*swish") for kind in ("transformer", "encoder")),
    ("transformer", {"mixing": "recurrence", "size": 9, "heads": 3}, "size: 9 given with mixing"),
    ("transformer", {"reach": 3}, 'reach: 3 given with mixing = "attention"'),
    ("transformer", {"mixing": "recurrence", "reach": 3}, 'reach: 3 given with mixing = "recurrence"'),
    ("transformer", {"mixing": "window", "reach": 0}, "reach"),
    ("transformer", {"mixing": "pooling"}, "mixing"),
    *(
        ("captioner", {"decoder": "transformer", "attention": each}, 'expected "soft"')
        for each in ("hard", "straight-through")
    ),
    ("captioner", {"attention": "straight-through", "tau": 0}, "tau"),
    ("han", {"pooling": "max"}, "attention = true"),
    ("han", {"levels": 3}, "levels: 3 given"),
    ("convnet", {"after": 4}, "after: 4 given, but there are 3 stages"),
    ("convnet", {"channels": 5}, "reduction: 10 channels are not divisible by 8"),
]


@pytest.mark.parametrize(("kind", "options", "message"), REFUSED)
def test_options_that_cannot_be_met_are_refused(kind, options, message):
    with pytest.raises(ConfigError, match=message):
        read_model_config({"kind": kind, **options})


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "none"])
def test_what_says_nothing_is_not_refused(positions):
    read_model_config({"kind": "transformer", "positions": positions, "sines": "interleaved"})
