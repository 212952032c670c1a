"""A graph shows what ran: every module once, no other, the shapes that hooks see, and edges that go forward."""

import re
from functools import cache

import pytest
import torch
from inspection.subjects import ALL, make, reads, stack, subject
from torch import nn

from regard.attention import Attention, Block, Dot, GridSelfAttention, Heads
from regard.attention.positions import near_sinusoids, near_turns
from regard.errors import ArgumentError
from regard.inspection.collect import trace
from regard.inspection.collect.graph import GENERAL, graph_of, make_source, make_tokens, number_layer, run_tiny
from regard.inspection.draw.graph import model_graph
from regard.models import Memory, Model, Tokens

CONCATENATE = "encoder/cat"


def parameters_that_matter(model):
    """Return the modules with own parameters that affect the output: those that get a gradient."""
    model.zero_grad()
    with torch.enable_grad():
        run_pass(model).square().sum().backward()
    return {
        name
        for name, module in model.named_modules()
        if any(each is not None and each.grad is not None for each in module._parameters.values())
    }


def run_pass(model):
    """Run a pass over inputs like those of a graph, without hooks."""
    kind = trace.kind_of(model)
    sizes = iter([3, 4, 6, 5])
    source = make_source(model, sizes, {})
    memory = model.encode(source)
    job = getattr(model.config, "job", None)
    if job == "classify" or kind.tasks == ("classify",):
        return model.classify(memory)
    target = make_tokens(model, len(source.lengths), 4)
    return model.output(model.decode(memory, target)[0])


# ---- contents


@cache
def drawn_of(name):
    """Return the folded and the full graph of a model, and the shapes by module that hooks saw during the full one."""
    model, seen = subject(name).model, {}

    def note(path):
        def keep(module, arguments, output):
            output = output[0] if isinstance(output, tuple) else output
            seen.setdefault(path, set()).add(tuple(output.shape))

        return keep

    folded = graph_of(model)
    hooks = [module.register_forward_hook(note(path)) for path, module in model.named_modules() if path]
    try:
        return folded, graph_of(model, fold=False), seen
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("name", ALL)
def test_every_module_that_ran_is_there_once_and_no_other(name):
    folded, whole, _ = drawn_of(name)
    expected = parameters_that_matter(subject(name).model)
    if name == "captioner-hard":  # it takes the likeliest position: the choice passes no gradient
        expected |= {f"decoder.cross.{part}" for part in ("score", "score.query", "score.key")}
    for graph in (folded, whole):
        there = [name for node in graph.nodes for name in (*node.modules, *node.folded)]
        assert len(there) == len(set(there))
        assert set(there) == expected
    assert all(node.count == 1 and not node.folded for node in whole.nodes)


@pytest.mark.parametrize("name", ALL)
def test_edges_go_forward_and_nothing_stands_alone(name):
    for graph in drawn_of(name)[:2]:
        place = {node.name: number for number, node in enumerate(graph.nodes)}
        assert len(place) == len(graph.nodes)
        assert all(place[edge.source] < place[edge.target] for edge in graph.edges)
        assert len(set(graph.edges)) == len(graph.edges)
        read, reading = ({getattr(edge, end) for edge in graph.edges} for end in ("source", "target"))
        assert place.keys() - read == {graph.nodes[-1].name}
        begins = {node.name for node in graph.nodes if node.kind in ("input", "learned", "previous")}
        assert place.keys() - reading <= begins
        assert all(set(group.nodes) <= place.keys() for group in graph.groups)


@pytest.mark.parametrize("name", ALL)
def test_shapes_are_those_that_hooks_see(name):
    _, graph, seen = drawn_of(name)
    compared = [node for node in graph.nodes if node.kind == "module" and node.name in seen]
    assert len(compared) >= 3
    for node in compared:
        assert node.shape in seen[node.name], node.name


# ---- what a graph says about a model


def test_norms_stand_before_or_after_as_the_model_has_them():
    pre, post = (graph_of(stack(norm=norm, layers=1), fold=False) for norm in ("pre", "post"))
    block = "encoder.blocks.0"
    assert reads(pre, f"{block}.attention.query") == [f"{block}.attention_norm"]
    assert reads(pre, f"{block}.attention_norm") == ["source.positions"]
    assert reads(post, f"{block}.attention.query") == ["source.positions"]
    assert reads(post, f"{block}.attention_norm") == [f"{block}/dropout_add"]
    assert reads(post, f"{block}.feed.0") == [f"{block}.attention_norm"]


def test_a_step_reads_the_one_before_through_a_node_of_its_own():
    graph = graph_of(subject("rnnsearch").model)
    before = "cell, step before"
    assert graph.node(before).symbol == "s_{i−1}"
    assert reads(graph, before) == ["/tanh"]
    assert reads(graph, "attention.score.query") == [before]
    assert set(reads(graph, "cell")) == {before, "target", "attention/sum"}
    assert reads(graph, "attention/sum") == ["encoder/cat", "attention/weights"]


def test_each_layer_of_a_decoder_starts_from_its_own_of_the_encoder():
    graph = graph_of(subject("rnn-sutskever").model, fold=False)
    assert set(reads(graph, "decoder.layers.0")) == {"encoder.layers.0", "target"}
    assert set(reads(graph, "decoder.layers.1")) == {"encoder.layers.1", "decoder.layers.0"}


def test_what_both_sides_use_is_named_once():
    graph = graph_of(subject("pointer").model)
    shared = [node for node in graph.nodes if node.shares is not None]
    assert [(node.module, node.side, node.shares) for node in shared] == [("words", "decoder", "words")]


def test_a_language_model_has_one_side_and_a_classifier_another():
    assert {node.side for node in graph_of(subject("encoder-writes").model).nodes} == {"decoder"}
    assert {node.side for node in graph_of(subject("encoder-pools").model).nodes} == {"encoder"}
    assert {node.side for node in graph_of(subject("han").model).nodes} == {"encoder"}


class Own(Model):
    """A user's own model from torch's parts: an encoder of layers, and a cell that is called step by step."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.words, self.layers = nn.Embedding(50, 16), nn.TransformerEncoder(layer, 3)
        self.cell, self.mix, self.readout = nn.GRUCell(16, 16), nn.Linear(16, 16), nn.Linear(16, 50)

    def encode(self, source):
        return Memory(self.layers(self.words(source.ids)), source.span)

    def decode(self, memory, target):
        state, states = memory.states.mean(1), []
        for word in self.words(target.ids).unbind(1):
            state = self.cell(word + torch.sigmoid(self.mix(state)), state)
            states.append(state)
        return torch.stack(states, 1), {}


def test_a_model_of_ones_own_is_drawn_by_its_classes():
    made = model_graph(Own())
    graph = made.graph
    assert graph.kind == "Own"
    assert graph.node("layers.layers.0.self_attn").label == "MultiheadAttention"
    assert graph.node("layers.layers.0.linear1").count == 3
    assert set(reads(graph, "cell")) == {"cell, step before", "/add"}
    assert reads(graph, "cell, step before") == ["/mean"]
    assert reads(graph, "/mean") == ["layers.layers.0.norm2"]
    assert "Computational graph: Own" in made.svg


MODULES = [Heads(8, heads=2), Attention(Dot()), Block(8, heads=2), GridSelfAttention(8), nn.Linear(2, 2)]


@pytest.mark.parametrize("part", [*MODULES, Model, None, "runs/demo"])
def test_a_part_is_refused_in_a_sentence(part):
    with pytest.raises(ArgumentError, match=r"^model: .+ given, expected a whole model, such as load\(…\)\.model; "):
        model_graph(part)


@pytest.mark.parametrize("kind", ["luong", "rnnsearch"])
def test_every_layer_of_a_bidirectional_encoder_joins_its_own(kind):
    graph = graph_of(make(kind, embedding=4, layers=3, bidirectional=True))
    assert not [node for node in graph.nodes if node.kind == "previous" and node.side == "encoder"]
    for layer in range(3):
        ends = {f"encoder.{way}.{layer}" for way in ("forwards", "backwards")}
        joined = [node.name for node in graph.nodes if set(reads(graph, node.name)) == ends]
        annotation = next(name for name in joined if graph.node(name).shape[1] == graph.sizes["m"])
        if layer < 2:
            assert all(reads(graph, f"encoder.{way}.{layer + 1}") == [annotation] for way in ("forwards", "backwards"))
            assert f"^{{({layer + 1})}}" in graph.node(annotation).symbol
        else:
            assert annotation in reads(graph, "attention/sum")
            assert "^" not in graph.node(annotation).symbol


def test_each_layer_of_the_decoder_starts_from_both_ends_of_its_own():
    graph = graph_of(make("luong", embedding=4, layers=2, bidirectional=True))
    for layer in range(2):
        starts = [name for name in reads(graph, f"decoder.layers.{layer}") if name.startswith(CONCATENATE)]
        assert [set(reads(graph, each)) for each in starts] == [
            {f"encoder.forwards.{layer}", f"encoder.backwards.{layer}"}
        ]


def test_a_loop_over_steps_is_one_box():
    graph = graph_of(make("luong", embedding=4, layers=2))
    assert [node.calls for node in graph.nodes if node.name.startswith("/cat")] == [graph.sizes["n"]]


def test_sizes_of_the_pass_are_those_of_no_parameter():
    model = stack(size=14, hidden=11)
    sizes = run_tiny(model).sizes
    taken = {size for parameter in model.parameters() for size in parameter.shape}
    assert set(sizes) == {"b", "m", "n"}
    assert not taken & set(sizes.values())


def test_given_inputs_are_what_is_traced():
    source = Tokens.of(torch.ones(2, 9).long(), torch.tensor([9, 4]))
    target = Tokens.of(torch.ones(2, 3).long(), torch.tensor([3, 3]))
    graph = graph_of(stack(), source, target)
    assert graph.node("input source").shape == (2, 9)
    assert graph.node("decoder.blocks.0.cross.attention/score").shape == (2, 2, 3, 9)


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


@pytest.mark.parametrize(("label", "symbol"), [("ReLU", "max(0, ·)"), ("SiLU", "· σ(·)"), ("GELU", "· Φ(·)")])
def test_an_activation_is_the_one_that_the_model_has(label, symbol):
    kind = "encoder" if label == "GELU" else "transformer"
    box = graph_of(make(kind, activation=label.lower())).node("encoder.blocks.0.feed.1")
    assert (box.label, box.symbol) == (label, symbol)


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


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_the_first_graph_is_the_second(positions):
    """Position tables are cached once per process: the first graph must not differ because it computes them."""
    for each in (near_turns, near_sinusoids):
        each.cache_clear()
    model = make("transformer", positions=positions)
    assert model_graph(model).svg == model_graph(model).svg


# ---- identical layers


def test_alike_layers_are_folded_with_their_number():
    model = stack(layers=5, decoder_layers=3)
    folded, whole = graph_of(model), graph_of(model, fold=False)
    layers = {group.members[0]: group.count for group in folded.groups if group.count > 1}
    assert layers == {"encoder.blocks.0": 5, "decoder.blocks.0": 3}
    assert all(group.count == 1 for group in whole.groups)
    count = sum(node.module.startswith("encoder.blocks.0") for node in whole.nodes)
    assert sum(node.module.startswith("encoder.blocks") for node in whole.nodes) == 5 * count
    assert sum(node.module.startswith("encoder.blocks") for node in folded.nodes) == count
    assert "encoder.blocks.0/dropout_add 2" in reads(folded, "encoder.final_norm")
    assert reads(whole, "encoder.final_norm") == ["encoder.blocks.4/dropout_add 2"]


def test_a_layer_that_differs_is_drawn_by_itself():
    model = stack(layers=4)
    model.encoder.blocks[1].feed = nn.Sequential(nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 8))
    counts = {group.members[0]: group.count for group in graph_of(model).groups if ".encoder" in f".{group.members[0]}"}
    assert counts["encoder.blocks.0"] == 1
    assert counts["encoder.blocks.1"] == 1
    assert counts["encoder.blocks.2"] == 2
