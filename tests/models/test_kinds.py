"""The table of kinds: each row's statements are true of its model."""

import pytest
import torch
from models.cases import CASES, model_of, pair

from regard.attention import watch
from regard.data import END
from regard.errors import ArgumentError, ConfigError
from regard.models.contract import Model, Tokens
from regard.models.kinds import KINDS, build, complete_table, find_kind, read_model_config

ROWS = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


@ROWS
def test_every_preset_is_a_configuration(kind):
    for preset in kind.presets:
        config = read_model_config({"kind": kind.name, "preset": preset})
        assert {name: getattr(config, name) for name in kind.presets[preset]} == kind.presets[preset]


def test_a_table_without_a_kind_is_a_transformer():
    assert find_kind({}).name == find_kind({"kind": None}).name == "transformer"
    with pytest.raises(ConfigError, match="model.kind: .*luogn.* given, no such kind.*luong"):
        find_kind({"kind": "luogn"})
    with pytest.raises(ConfigError, match="model.preset: .*smal.* given, no such preset.*small"):
        read_model_config({"preset": "smal"})


def test_a_complete_table_has_every_option():
    table = complete_table({"kind": "rnn", "size": 7})
    assert table == {"kind": "rnn", **{key: table[key] for key in vars(KINDS["rnn"].config())}}
    assert (table["size"], table["cell"]) == (7, "gru")


def test_kinds_that_share_a_vocabulary_refuse_two():
    sharing = [kind for kind in KINDS.values() if kind.shares_vocabulary]
    assert [kind.name for kind in sharing] == ["pointer"]
    for kind in sharing:
        build(kind.name, kind.config(), 20, 20)
        with pytest.raises(ArgumentError, match="expected one for both sides"):
            build(kind.name, kind.config(), 20, 21)


@pytest.mark.parametrize("name", ["pointer", "ntm"])
@torch.no_grad()
def test_kinds_that_read_the_end_hang_on_its_embedding(name):
    """The other kinds never see END in a source."""
    model, (source, target) = model_of(name), pair()
    source = Tokens.of(source.ids.clamp(min=END + 1), source.lengths)
    target = Tokens.of(target.ids.clamp(min=END + 1), target.lengths)
    before = model(source, target)[target.real]
    changed = model.end if name == "pointer" else model.source.weight[END]
    changed.add_(1.0)
    assert KINDS[name].reads_end
    assert not torch.allclose(model(source, target)[target.real], before)


def test_only_those_kinds_read_the_end():
    assert [name for name, kind in KINDS.items() if kind.reads_end] == ["pointer", "ntm"]


@pytest.mark.parametrize("name", ["pointer", "encoder", "rnnsearch", "lstmn"])
@torch.no_grad()
def test_titles_are_of_attentions_that_there_are(name):
    model = model_of(name)
    names = {each for each, _ in model.named_modules()}
    titles = KINDS[CASES[name][0]].titles
    if name == "encoder":  # only a classifier has pooling
        model = build("encoder", KINDS["encoder"].config(pooling="attention", size=8, heads=2), 20, 3)
        names = {each for each, _ in model.named_modules()}
    assert set(titles) <= names


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_recurrent_models_show_their_states_and_others_none(name):
    model, (source, target) = model_of(name), pair()
    memory = model.encode(source)
    state = model.start(memory, 1, 9)
    model.step(target.ids[:, 0], state)
    hidden, read = model.hidden_state(state), model.source_states(memory)
    recurrent = CASES[name][0] not in ("transformer", "encoder")
    blocks = getattr(model.config, "encoder", None) in ("convolution", "self-attention")
    assert (hidden is not None, read is not None) == (recurrent, recurrent and not blocks)
    if hidden is not None:
        assert hidden.shape == (3, model.config.size)
    assert model.reads_backwards == getattr(model.config, "reverse", False)
    assert model.points == (CASES[name][0] == "pointer")


def test_a_model_need_not_say_anything():
    model = Model()
    assert (model.hidden_state(None), model.source_states(None)) == (None, None)
    assert [model.points, model.reads_backwards, model.packs, model.gives_weights] == [False] * 4
    assert model.cross_attentions == []
    with watch(model) as looks:
        pass
    assert not looks
