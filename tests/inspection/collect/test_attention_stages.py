"""Stages of a walk: each follows from the one before by the formula, from x to Σ a v, for all kinds of attention."""

import pytest
import torch
from inspection.subjects import ATTENTIVE, TEXT, reads, recorded, stack, subject, walk, walked
from oracles import agree
from torch import nn

from regard.attention import Attention, Causal, Dot, Heads, Lengths
from regard.inspection.collect.graph import graph_of

ATTENTIONS = [name for name in ATTENTIVE if not name.startswith("ntm")]
HEADS = [name for name in ATTENTIONS if name.startswith(("transformer", "encoder", "captioner-transformer"))]


def column(stage):
    assert stage.values.shape[1] == 1
    return stage.values[:, 0]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_each_stage_follows_from_the_one_before(name):
    seen, views = recorded(name)
    model = seen.model
    for view in views:
        heads, n, _ = view.weights.shape
        rows = sorted({n // 3, n - 1})
        for head, row in [(head, row) for head in range(heads) for row in rows]:
            made, stages = walked(name, view.name, head, row)
            assert (made.view, made.head, made.row) == (view.name, head, row)
            for stage in made.stages:
                assert stage.words
                assert len(stage.names) == len(stage.values)
            if "a" not in stages:  # the first word of a tape
                assert view.weights[head, row].sum() == 0
                assert (stages["Σ a v"].values == 0).all()
                continue
            weights, shown = column(stages["a"]), view.weights[head, row]
            e, masked = column(stages["e"]), column(stages["e masked"])
            large = max(1.0, float(e.abs().max()))  # without norms scores are large, and so are their rounding errors
            agree(weights[weights > 0], shown[shown > 0], rtol=1e-5 * large, atol=1e-7 * large)
            last = next(column(stages[symbol]) for symbol in ("e + b", "e/√d", "e") if symbol in stages)
            assert torch.equal(masked[masked.isfinite()], last[masked.isfinite()])
            assert (weights[masked == -torch.inf] == 0).all()
            assert last.isfinite().all()
            result = column(stages.get("softmax(e)", stages["a"]))
            if len(stages["Σ a v"].values) == 1:  # not one row for each sentence of a document
                agree(torch.softmax(masked, 0), result, rtol=1e-4, atol=1e-6)
            if "tanh(W q + U k + b)" in stages:
                attention = seen.looks.modules[view.name]
                score = attention.attention.score.head_scores[head] if isinstance(attention, Heads) else attention.score
                agree(stages["tanh(W q + U k + b)"].values @ score.v.detach(), e, rtol=1e-4, atol=1e-5)
                summed = stages["W q"].values + stages["U k + b"].values
                agree(torch.tanh(summed), stages["tanh(W q + U k + b)"].values)
                agree(score.query(stages["q"].values).detach(), stages["W q"].values, rtol=1e-4, atol=1e-5)
            elif "W k" in stages or "k" in stages:
                keys = stages.get("W k", stages.get("k"))
                agree(keys.values @ stages["q"].values[0], e, rtol=1e-4, atol=1e-5)
            if "e/√d" in stages:
                agree(e / stages["q"].values.shape[1] ** 0.5, column(stages["e/√d"]), rtol=1e-4, atol=1e-6)
            if len(stages["Σ a v"].values) == 1:
                agree(weights @ stages["v"].values, stages["Σ a v"].values[0], rtol=1e-4, atol=1e-5)
    assert not model.training


@pytest.mark.parametrize("name", HEADS)
def test_x_times_its_matrices_is_q_k_and_v(name):
    """Multiply with the weight matrices of every head, without calling the projection modules."""
    forward, views = recorded(name)
    for view in views:
        module = forward.looks.modules[view.name]
        if not isinstance(module, Heads):
            continue
        row = view.weights.shape[1] // 2
        for head in range(len(view.weights)):
            _, stages = walked(name, view.name, head, row)
            keys = stages["m_j"] if "m_j" in stages else stages["x_j"]
            assert ("m_j" in stages) == view.name.endswith("cross")
            if "x_j" in stages:
                assert torch.equal(stages["x_j"].values[row], stages["x"].values[0])
            rotary = module.rotary is not None
            query, key = ("x W_Q", "x W_K") if rotary else ("q", "k" if "k" in stages else "U k + b")
            for number, (symbol, given) in enumerate([(query, stages["x"]), (key, keys), ("v", keys)]):
                if symbol == "U k + b":
                    continue
                projected = matrix_product(module, number, head, given.values)
                agree(projected, stages[symbol].values, rtol=1e-4, atol=1e-5)
            if "r" in stages:
                norm = forward.model.get_submodule(view.name + "_norm")
                agree(norm(stages["r"].values).detach(), stages["x"].values, rtol=1e-4, atol=1e-5)


def matrix_product(module, number, head, x):
    """Return x W + b of one head, with q, k and v numbered 0, 1, 2."""
    deep, wide, heads = module.query_size, module.value_size, module.heads
    part = [module.query, module.key, module.value][number]
    if module.split == "input":
        slices = x.unflatten(-1, (heads, -1))[:, head]
        return (slices @ part.weight[head].mT + part.bias.unflatten(0, (heads, -1))[head]).detach()
    if module.projection is not None:
        both = module.projection.weight, module.projection.bias
        weight, bias = (each.split((deep, deep, wide))[number] for each in both)
    else:
        weight, bias = part.weight, part.bias
    weight, bias = (each.unflatten(0, (heads, -1))[head] for each in (weight, bias))
    return (x @ weight.mT + bias).detach()


def test_rotary_places_rotate_q_and_k():
    for row in (0, 4):
        made, _ = walked("transformer-rotary", "encoder.blocks.0.attention", 1, row)
        stages = {stage.symbol: stage.values for stage in made.stages}
        agree(stages["x W_Q"].norm(dim=-1), stages["q"].norm(dim=-1), rtol=1e-4, atol=1e-5)
        assert torch.allclose(stages["x W_Q"], stages["q"], atol=1e-5) == (row == 0)
        agree(stages["x W_K"][0], stages["k"][0], rtol=1e-5, atol=1e-6)


def test_what_may_not_be_looked_at_is_listed_with_minus_infinity():
    pieces = recorded("transformer")[0].sides["read"].pieces
    _, stages = walked("transformer", "decoder.blocks.0.attention", 0, 2)
    assert stages["k"].names == stages["e masked"].names == pieces
    assert (column(stages["e masked"]) == -torch.inf).tolist() == [place > 2 for place in range(len(pieces))]
    assert f"{len(pieces) - 3} of {len(pieces)} may not be looked at" in stages["e masked"].words
    _, stages = walked("luong-local-m", "attention", 0, 4)
    open_ = [place for place, value in enumerate(column(stages["e masked"]).tolist()) if value > -torch.inf]
    assert open_ == [2, 3, 4, 5, 6]


def test_papers_have_their_own_words():
    for name, formulas in {
        "rnnsearch": ["s_{i−1}", "U h_j + b", "α_ij = softmax(e)", "c_i = Σ α_ij h_j"],
        "luong": ["h_t", "W h̄_j", "c_t = Σ a_tj h̄_j"],
        "pointer": ["d_i", "p(C_i = j) = softmax(u)"],
        "captioner": ["h_{t−1}", "U a_i + b", "Σ α_ti a_i"],
        "captioner-hard": ["α_ti"],
        "lstmn-deep": ["[h̃_t; c̃_t] = Σ s_i [h_i; c_i]"],
        "han": ["u_s", "v = Σ α h"],
        "transformer": ["q = x W_Q + b_Q", "k = m W_K + b_K", "v = m W_V + b_V"],
    }.items():
        _, views = recorded(name)
        shown = [stage.formula for stage in walked(name, views[-1].name)[0].stages]
        assert set(formulas) <= set(shown), (name, shown)


def test_alibi_takes_away_by_distance():
    made = walk(subject("transformer-alibi"), TEXT, view="encoder.blocks.0.attention", head=1, row=3, longest=4)
    stages = {stage.symbol: stage for stage in made.stages}
    taken = column(stages["e + b"]) - column(stages["e/√d"])
    agree(taken, -(2.0**-8) * (torch.arange(len(taken)) - 3).abs(), rtol=1e-3, atol=1e-5)


def test_a_document_has_a_context_a_sentence():
    seen, _ = recorded("han")
    _, stages = walked("han", "words")
    belongs = torch.tensor(seen.sides["source"].sentences)
    weights, values = column(stages["a"]), stages["v"].values
    sentences = seen.sides["sentences"].pieces
    assert stages["Σ a v"].names == sentences
    for number in range(len(sentences)):
        own = belongs == number
        agree(weights[own].sum(), torch.tensor(1.0), rtol=1e-5, atol=1e-6)
        agree(torch.softmax(column(stages["e"])[own], 0), weights[own], rtol=1e-4, atol=1e-6)
        agree(weights[own] @ values[own], stages["Σ a v"].values[number], rtol=1e-4, atol=1e-5)


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
    """A minimal model for a graph: an attention between an embedding and a readout."""

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
    """A user's own score."""

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
