"""A graph is what ran: every module once, no other, with the shapes that hooks see, and edges that go forward."""

from functools import cache

import pytest
import torch
from inspection.subjects import ALL, subject
from torch import nn

from regard.attention.attention import Attention
from regard.attention.heads import Heads
from regard.attention.score import Dot
from regard.attention.span import Causal, Lengths
from regard.inspection.collect import tiny_pass
from regard.inspection.collect.from_model import graph_of
from regard.models.contract import Tokens
from regard.models.kinds import build, read_model_config


def make(kind, vocabulary=20, **options):
    torch.manual_seed(1)
    config = read_model_config({"kind": kind, "size": 8, **options})
    return build(kind, config, vocabulary, vocabulary).eval()


def stack(kind="transformer", **options):
    return make(kind, **{"heads": 2, "layers": 2, "hidden": 12, **options})


def reads(graph, name):
    return [edge.source for edge in graph.edges if edge.target == name]


def parameters_that_matter(model):
    """The modules with parameters of their own that the output hangs on: those that get a gradient."""
    model.zero_grad()
    with torch.enable_grad():
        run_pass(model).square().sum().backward()
    return {
        name
        for name, module in model.named_modules()
        if any(each is not None and each.grad is not None for each in module._parameters.values())
    }


def run_pass(model):
    """A pass over inputs like those of a graph, without hooks."""
    kind = tiny_pass.kind_of(model)
    sizes = iter([3, 4, 6, 5])
    source = tiny_pass.make_source(model, kind, sizes, {})
    memory = model.encode(source)
    job = getattr(model.config, "job", None)
    if job == "classify" or kind.tasks == ("classify",):
        return model.classify(memory)
    target = tiny_pass.make_tokens(model, len(source.lengths), 4)
    return model.output(model.decode(memory, target)[0])


# ---- what is in it


@cache
def drawn_of(name):
    """The graph of a model, folded and whole, and what hooks saw beside the latter: shapes by module."""
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
    if name == "captioner-hard":  # the likeliest place is taken: no gradient goes through that choice
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


def test_the_same_model_gives_the_same_graph_and_stays_as_it_was():
    model = subject("luong").model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert graph_of(model) == graph_of(model)
    assert model.training
    model.eval()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for module in model.modules():
        assert not module._forward_hooks
        assert "attend_projected" not in vars(module)


# ---- what it says of a model


def test_norms_stand_before_or_after_as_the_model_has_them():
    pre, post = (graph_of(stack(norm=norm, layers=1), fold=False) for norm in ("pre", "post"))
    block = "encoder.blocks.0"
    assert reads(pre, f"{block}.attention.query") == [f"{block}.attention_norm"]
    assert reads(pre, f"{block}.attention_norm") == ["source.positions"]
    assert reads(post, f"{block}.attention.query") == ["source.positions"]
    assert reads(post, f"{block}.attention_norm") == [f"{block}/dropout_add"]
    assert reads(post, f"{block}.feed.0") == [f"{block}.attention_norm"]


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


def test_what_is_not_called_is_not_there():
    model = stack(layers=3, norm="post")
    del model.encoder.blocks[1]
    model.encoder.blocks[0].feed = nn.Identity()
    names = {node.name for node in graph_of(model, fold=False).nodes}
    assert not any(name.startswith("encoder.blocks.2") for name in names)
    assert not any("encoder.blocks.0.feed." in name for name in names)
    assert "encoder.blocks.1.feed.0" in names


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


def test_sizes_of_the_pass_are_those_of_no_parameter():
    model = stack(size=14, hidden=11)
    sizes = tiny_pass.run_tiny(model).sizes
    taken = {size for parameter in model.parameters() for size in parameter.shape}
    assert set(sizes) == {"b", "m", "n"}
    assert not taken & set(sizes.values())


def test_given_inputs_are_what_is_traced():
    source = Tokens.of(torch.ones(2, 9).long(), torch.tensor([9, 4]))
    target = Tokens.of(torch.ones(2, 3).long(), torch.tensor([3, 3]))
    graph = graph_of(stack(), source, target)
    assert graph.node("input source").shape == (2, 9)
    assert graph.node("decoder.blocks.0.cross.attention/score").shape == (2, 2, 3, 9)
