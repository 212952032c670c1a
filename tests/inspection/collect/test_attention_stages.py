"""Attention's stages in a graph are those that its score, span and weighting say."""

import pytest
import torch
from inspection.graphs import reads, stack
from inspection.subjects import subject
from torch import nn

from regard.attention import Attention, Causal, Dot, Heads, Lengths
from regard.inspection.collect.from_model import graph_of


def test_attention_has_the_stages_that_its_parts_name():
    graph = graph_of(stack(layers=1), fold=False)
    heads = "decoder.blocks.0.cross"
    stages = [node.name.removeprefix(f"{heads}.attention/") for node in graph.nodes if node.kind == "stage"][-6:]
    assert stages == ["score", "scale", "mask", "weights", "sum", "concatenate"]
    assert reads(graph, f"{heads}.attention/score") == [f"{heads}.query", f"{heads}.key"]
    assert reads(graph, f"{heads}.attention/sum") == [f"{heads}.value", f"{heads}.attention/weights"]
    assert reads(graph, f"{heads}.key") == reads(graph, f"{heads}.value") == ["encoder.final_norm"]
    assert reads(graph, f"{heads}.output") == [f"{heads}.attention/concatenate"]
    sizes = graph.sizes
    assert graph.node(f"{heads}.attention/weights").shape == (sizes["b"], 2, sizes["n"], sizes["m"])
    assert graph.node("decoder.blocks.0.attention.attention/mask").note == "what comes later"


@pytest.mark.parametrize(
    ("score", "scaled", "scale"), [("dot", True, True), ("dot", False, False), ("additive", True, False)]
)
def test_the_scale_is_there_if_the_score_has_one(score, scaled, scale):
    graph = graph_of(stack(score=score, scaled=scaled), fold=False)
    assert any(node.name.endswith("attention/scale") for node in graph.nodes) is scale


class Looking(nn.Module):
    """The least that a graph can be made of: an attention between an embedding and a readout."""

    limit, projects, config = None, True, None

    def __init__(self, span, attention):
        super().__init__()
        self.words, self.attention, self.readout = nn.Embedding(9, 8), attention, nn.Linear(8, 9)
        self.span = span

    def encode(self, source):
        return source

    def decode(self, source, target):
        return self.attention(self.words(target.ids), self.words(source.ids), span=self.span), {}

    def output(self, hidden):
        return self.readout(hidden)


@pytest.mark.parametrize(("span", "there"), [(None, False), (Causal(), True), (Lengths(2), True)])
def test_a_mask_is_there_if_and_only_if_a_span_limits(span, there):
    for attention in (Attention(Dot()), Heads(8, 2)):
        graph = graph_of(Looking(span, attention))
        assert any(node.name.endswith("/mask") for node in graph.nodes) is there


class Nearness(Dot):
    """A score of someone's own."""

    def compare(self, projected_query, projected_keys, first=0):
        return -torch.cdist(projected_query, projected_keys)


def test_another_score_is_named_by_its_class():
    graph = graph_of(Looking(None, Attention(Nearness())))
    assert graph.node("attention/score").note == "Nearness"


def test_where_each_key_is_its_own_value_the_sum_counts_keys():
    graph = graph_of(subject("pointer").model)
    summed = graph.node("attention/sum")
    assert summed.shape == graph.node("attention/weights").shape
    assert summed.pairs
    assert summed.note == "each key is its own value"
    usual = graph_of(subject("luong").model).node("attention/sum")
    assert not usual.pairs
    assert not usual.note
