"""Symbols of the very thing that a box holds: by layer, by option, by tape."""

import re

import pytest
from inspection.graphs import make
from inspection.subjects import ALL, subject

from regard.inspection.collect.from_model import graph_of
from regard.inspection.collect.symbols import GENERAL, number_layer


@pytest.mark.parametrize(
    ("symbol", "layer", "layers", "expected"),
    [
        ("h^{(ℓ)}_t", 1, 3, "h^{(1)}_t"),
        ("h^{(ℓ)}_t", 3, 3, "h_t"),
        ("[h^{(ℓ−1)}_t; h̃^{(ℓ)}_{t−1}]", 1, 2, "[x_t; h̃^{(1)}_{t−1}]"),
        ("[h^{(ℓ−1)}_t; h̃^{(ℓ)}_{t−1}]", 2, 2, "[h^{(1)}_t; h̃_{t−1}]"),
        ("s^{t(ℓ)}_i", 1, 2, "s^{t(1)}_i"),
        ("s^{t(ℓ)}_i", 2, 2, "s^{t}_i"),
        ("c^{(ℓ)}_t‖α_t", 1, 2, "c^{(1)}_t"),
        ("c^{(ℓ)}_t‖α_t", 2, 2, "α_t"),
        ("W_s h̃_t", 1, 1, "W_s h̃_t"),
        ("", 1, 2, ""),
    ],
)
def test_a_layer_has_its_number_and_the_top_one_none(symbol, layer, layers, expected):
    assert number_layer(symbol, layer, layers) == expected


def test_lower_layers_of_a_stack_are_not_called_by_the_name_of_the_top_one():
    model = make("luong", embedding=4, layers=4)
    whole, folded = graph_of(model, fold=False), graph_of(model)
    symbols = [whole.node(f"decoder.layers.{layer}").symbol for layer in range(4)]
    assert symbols == ["h^{(1)}_t", "h^{(2)}_t", "h^{(3)}_t", "h_t"]
    assert whole.node("encoder.layers.0").symbol == "h̄^{(1)}_s"
    assert whole.node("encoder.layers.3").symbol == "h̄_s"
    assert folded.node("decoder.layers.1").count == 3
    assert folded.node("decoder.layers.1").symbol == "h^{(ℓ)}_t"
    assert folded.node("decoder.layers.0").symbol == "h^{(1)}_t"


def test_tapes_are_read_whole_and_have_the_names_of_their_side():
    graph = graph_of(subject("lstmn").model)
    tape = graph.node("decoder.layers.0/step_lstm, step before")
    assert (tape.label, tape.symbol) == ("all steps before", "H^{(1)}_{t−1}, C^{(1)}_{t−1}")
    assert graph.node("decoder.layers.1/step_lstm, step before").symbol == "H_{t−1}, C_{t−1}"
    assert graph.node("encoder.layers.0/step_lstm").symbol == "[h^{(1)}_t; c^{(1)}_t]"
    assert graph.node("encoder.layers.1/step_lstm").symbol == "[γ_t; α_t] = [h_t; c_t]"
    summary = graph.node("decoder.layers.0.intra/sum, step before")
    assert (summary.label, summary.symbol) == ("step before", "[h̃^{(1)}_{t−1}; c̃^{(1)}_{t−1}]")
    assert graph.node("decoder.layers.0.cell").label == "linear"


def test_without_tapes_a_step_reads_the_one_before_alone():
    graph = graph_of(subject("lstmn-plain").model)
    before = graph.node("encoder.layers.0/step_lstm, step before")
    assert (before.label, before.symbol) == ("step before", "[γ_{t−1}; α_{t−1}]")
    assert graph.node("encoder.layers.0.cell").symbol == "W [h_{t−1}; x_t]"


def test_a_language_model_of_blocks_reads_the_words_that_it_predicts():
    graph = graph_of(subject("encoder-writes").model)
    assert graph.node("input target").symbol == "x_1 … x_n"
    assert graph.nodes[-1].symbol == "p(x_{i+1} | x_{≤i})"


def test_a_caption_by_blocks_has_words_and_places_of_its_own():
    graph = graph_of(subject("captioner-transformer").model)
    symbols = {(node.side, node.label): node.symbol for node in graph.nodes}
    assert symbols["decoder", "embedding"] == "E y_i"
    assert symbols["decoder", "add positions"] == "y_i + p_i"
    assert symbols["encoder", "add positions"] == "a_{yx} + p_{yx}"
    assert graph.node("readout").symbol == "logits"
    assert graph_of(subject("captioner").model).node("readout").symbol == "L_o (…)"


@pytest.mark.parametrize(
    ("kind", "activation", "expected"),
    [
        ("transformer", "relu", ("ReLU", "max(0, ·)")),
        ("transformer", "silu", ("SiLU", "· σ(·)")),
        ("encoder", "gelu", ("GELU", "· Φ(·)")),
    ],
)
def test_an_activation_is_the_one_that_the_model_has(kind, activation, expected):
    box = graph_of(make(kind, activation=activation)).node("encoder.blocks.0.feed.1")
    assert (box.label, box.symbol) == expected


def test_embeddings_without_a_scale_are_not_multiplied():
    for scaled in (True, False):
        labels = [node.label for node in graph_of(make("transformer", scale_embeddings=scaled)).nodes]
        assert any(label.startswith("×") for label in labels) == scaled


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("luong", "score(h_t, h̄_s) = h_t^⊤ W_a h̄_s"),
        ("luong-dot-unfed", "score(h_t, h̄_s) = h_t^⊤ h̄_s"),
        ("luong-concat", "score(h_t, h̄_s) = v_a^⊤ tanh(W_a [h_t; h̄_s])"),
        ("luong-location", "W_a h_t"),
    ],
)
def test_a_score_is_the_one_that_the_model_has(name, expected):
    assert graph_of(subject(name).model).node("attention/score").symbol == expected


@pytest.mark.parametrize("name", [None, *ALL])
def test_every_pattern_can_be_read_and_every_index_is_closed(name):
    rows = GENERAL if name is None else [pair for table in subject(name).model.notation.boxes for pair in table.items()]
    assert rows
    for pattern, symbol in rows:
        re.compile(pattern)
        assert symbol.count("{") == symbol.count("}")
        assert not re.search(r"[_^]($|[ \])])", symbol)
        assert "ℓ" not in symbol.replace("(ℓ)", "").replace("h^{(ℓ−1)}_t", "")
