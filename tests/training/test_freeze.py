"""Frozen parts stay as they are to the last bit, the rest learns, and a part that there is none of is named."""

import pytest
import torch
from tiny import table

from regard.errors import ConfigError
from regard.models import TransformerConfig, kinds
from regard.run import load
from regard.tasks import start
from regard.training.checkpoint import Checkpoints, read_checkpoint
from regard.training.freeze import freeze_parts


def build(**options):
    config = TransformerConfig(size=8, heads=2, layers=2, hidden=16, **options)
    return kinds.build("transformer", config, 20, 20)


def trained(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_parts_by_name_and_by_pattern():
    model = build(tied="none")
    everything = trained(model)
    assert freeze_parts(model, ["encoder"]) == sum(each.numel() for each in model.encoder.parameters())
    assert trained(model) == {name for name in everything if not name.startswith("encoder.")}
    model = build(tied="none")
    assert freeze_parts(model, ["embeddings"]) == 2 * 20 * 8
    assert everything - trained(model) == {"source.tokens.weight", "target.tokens.weight"}
    model = build(tied="none")
    freeze_parts(model, ["*.bias", "decoder.blocks.0"])
    left_out = {name for name in everything if name.endswith(".bias") or name.startswith("decoder.blocks.0.")}
    assert trained(model) == everything - left_out
    model = build(tied="none")
    model.encoder.requires_grad_(False)  # by itself
    assert freeze_parts(model, []) == 0
    assert trained(model) == {name for name in everything if not name.startswith("encoder.")}


def test_a_shared_table_is_frozen_by_any_of_its_names():
    for part in ("embeddings", "source", "target", "readout.weight"):
        model = build(tied="all")
        assert freeze_parts(model, [part]) == 20 * 8
        assert not model.readout.weight.requires_grad


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            ["encodr"],
            '"encodr" given, which no weight is called; expected source, encoder, decoder, readout, embeddings',
        ),
        (["encoder.blocks.7.*"], '"encoder.blocks.7.*" given'),
        (["*"], "which leaves nothing to train"),
    ],
)
def test_mistakes(parts, message):
    with pytest.raises(ConfigError) as refusal:
        freeze_parts(build(tied="all"), parts)
    assert refusal.value.key == "training.freeze"
    assert message in str(refusal.value)


def test_a_training_changes_only_what_is_left(tmp_path):
    start(table(tmp_path, training__steps=2), tmp_path / "base")
    freeze = {"training__freeze": ["encoder", "embeddings"]}
    start(table(tmp_path, training__steps=3, **freeze), tmp_path / "new", base=tmp_path / "base")
    before, after = (load(tmp_path / name).model.state_dict() for name in ("base", "new"))
    same = {name for name, tensor in before.items() if torch.equal(tensor, after[name])}
    assert same >= {name for name in before if name.startswith(("encoder.", "source.", "target."))}
    assert not {name for name in same if name.startswith("decoder.") and name.endswith("projection.weight")}
    state = read_checkpoint(Checkpoints(tmp_path / "new").find("last")).trainer
    assert state
    assert not [name for name in state if ".encoder." in name]


def test_a_resumed_run_stays_frozen(tmp_path):
    freeze = {"training__freeze": ["encoder"], "training__validate_every": 2}
    start(table(tmp_path / "a", training__steps=4, **freeze), tmp_path / "whole")
    start(table(tmp_path / "a", training__steps=2, **freeze), tmp_path / "halves")
    start(table(tmp_path / "a", training__steps=4, **freeze), tmp_path / "halves", resume=True)
    one, other = (load(tmp_path / name, checkpoint="last").model.state_dict() for name in ("whole", "halves"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
