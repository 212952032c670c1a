"""Heads that are silenced for a whole test set: the same as their values being nothing."""

import pytest
import torch
from models.cases import model_of, pair

from regard_studies.heads.head_ablation import Head, attention_kind, list_heads, silence_heads


def test_every_head_of_every_attention():
    found = list_heads(model_of("transformer"))
    assert len(found) == len(set(found)) == (2 + 2 + 2) * 2
    assert {attention_kind(head) for head in found} == {"encoder", "decoder", "cross"}
    assert attention_kind(Head("decoder.blocks.1.cross", 0)) == "cross"


@pytest.mark.parametrize("name", ["transformer", "transformer-sliced"])
@torch.no_grad()
def test_a_silent_head_is_one_whose_values_are_nothing(name):
    model, (source, target) = model_of(name), pair()
    whole = model(source, target)
    silent = [Head("encoder.blocks.0.attention", 1), Head("decoder.blocks.1.cross", 0)]
    with silence_heads(model, silent):
        found = model(source, target)
    assert not torch.allclose(found, whole)
    torch.testing.assert_close(model(source, target), whole)  # nobody listens any more
    for path, head in silent:
        heads = model.get_submodule(path)
        rows = slice(head * 4, (head + 1) * 4)  # of 8 values for 2 heads
        if heads.projection is None:
            heads.value.weight[head] = 0
            heads.value.bias[rows] = 0
        else:
            first = 2 * heads.query_size
            heads.projection.weight[first:][rows] = 0
            heads.projection.bias[first:][rows] = 0
    torch.testing.assert_close(model(source, target), found)
