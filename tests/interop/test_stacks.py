"""Blocks and rows in the form of other toolkits: one to one, in both directions; errors name wrong sizes and files."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from regard.errors import CheckpointError, DataError
from regard.interop.stacks import (
    block_names,
    check_tensors,
    collect_blocks,
    config_of,
    move_rows,
    permute_stream,
    read_sizes,
    read_tensors,
    spread_blocks,
)
from regard.models import TransformerConfig, build

CONFIG = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "activation_function": "swish"}
CONFIG |= {f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in (("attention_heads", 3), ("ffn_dim", 7))}
HERE = Path("config.json")


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_blocks_go_out_and_come_back(norm):
    config = TransformerConfig(size=12, heads=3, layers=2, decoder_layers=1, hidden=7, norm=norm, activation="silu")
    assert read_sizes(CONFIG, norm, HERE) == config
    run = SimpleNamespace(settings=SimpleNamespace(data=SimpleNamespace(longest=9)))
    assert read_sizes(config_of(run, config, "A", "a"), norm, HERE) == config
    weights = build("transformer", config, 9, 9).state_dict()
    own = {name for name in weights if name.startswith(("encoder", "decoder"))}
    tensors = spread_blocks(weights, config)
    shapes = {name: shape for _, names, shape in block_names(config) for name in names}
    check_tensors(tensors, shapes, HERE)
    back = collect_blocks(tensors, config)
    assert back.keys() == own  # every weight of the blocks, and no other
    assert all(torch.equal(back[name], weights[name]) for name in own)


def test_rows_move_and_those_from_nowhere_are_zeros():
    table = torch.randn(4, 3)
    moved = move_rows(table, [None, 3, 0, 3])
    assert torch.equal(moved, torch.stack([torch.zeros(3), table[3], table[0], table[3]]))
    assert torch.equal(move_rows(table.half(), [1]), table.half().float()[1:2])


def test_a_permuted_stream_only_moves():
    config = TransformerConfig(size=4, heads=2, layers=1, hidden=6, norm="post")
    tensors = {name: torch.randn(shape) for _, names, shape in block_names(config) for name in names}
    tensors |= {"model.shared.weight": torch.randn(5, 4), "final_logits_bias": torch.randn(1, 5)}
    order = torch.tensor([0, 2, 1, 3])
    once = permute_stream(tensors, order)
    assert not torch.equal(once["model.shared.weight"], tensors["model.shared.weight"])
    twice = permute_stream(once, order)
    assert all(torch.equal(twice[name], tensors[name]) for name in tensors)
    assert torch.equal(once["final_logits_bias"], tensors["final_logits_bias"])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"d_model": 13}, "d_model is 13, which 3 attention heads do not divide"),
        ({"encoder_layers": 0}, "encoder_layers is 0, expected a whole number from 1"),
        ({"decoder_layers": True}, "decoder_layers is true, expected a whole number"),
        ({"encoder_ffn_dim": None}, "encoder_ffn_dim is null, expected a whole number"),
        ({"activation_function": ["relu"]}, "activation_function is"),
    ],
)
def test_sizes_that_are_none(changes, problem):
    with pytest.raises(DataError, match=f"config.json: {problem}"):
        read_sizes({**CONFIG, **changes}, "post", HERE)


def test_weights_in_several_files(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "one.bin")
    torch.save({"b": torch.zeros(3)}, tmp_path / "two.bin")
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.bin", "b": "two.bin"}}))
    tensors, files = read_tensors(tmp_path)
    assert sorted(tensors) == ["a", "b"]
    assert files == (index, tmp_path / "one.bin", tmp_path / "two.bin")
    for wrong in ({}, {"weight_map": {"a": "../one.bin"}}, {"weight_map": {"a": 3}}, {"weight_map": ["one.bin"]}):
        index.write_text(json.dumps(wrong))
        with pytest.raises(DataError, match="weight_map is missing, or names no files beside it"):
            read_tensors(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "absent.bin"}}))
    with pytest.raises(CheckpointError, match=r"absent\.bin: No such file"):
        read_tensors(tmp_path)
