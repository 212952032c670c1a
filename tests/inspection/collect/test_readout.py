"""The way from a context to a word: each stage from the one before it, the end by the model's own logits."""

import pytest
import torch
import torch.nn.functional as F
from inspection.subjects import ALL, ATTENTIVE, TEXT, item_of, recorded, subject, walk
from oracles import agree

from regard.attention import Heads
from regard.inspection import Which
from regard.inspection.collect.walk import stages_of, vocabulary_of

HEADS = [name for name in ATTENTIVE if name.startswith(("transformer", "encoder", "captioner-transformer"))]
# A probability moves by the share that its logit moves by. Without norms logits grow from layer to layer: to tens where
# there is no residual stream either, and to thousands where there is one; a float's last digit is then a thousandth.
PROBABILITIES = {"transformer-bare": 5e-5, "transformer-no-norm": 5e-3}


def walked(name, which=Which()):  # noqa: B008
    """The stages of a walk by their symbols."""
    forward, views = recorded(name)
    made = stages_of(forward, views, which, vocabulary_of(subject(name)))
    stages = {stage.symbol: stage for stage in made.stages}
    assert len(stages) == len(made.stages)  # no symbol stands twice
    return made, stages


@pytest.mark.parametrize("name", HEADS)
def test_a_block_from_the_heads_to_the_stream(name):
    forward, views = recorded(name)
    for view in views:
        module = forward.looks.modules[view.name]
        if not isinstance(module, Heads):
            continue
        block, part = forward.model.get_submodule(view.name.rpartition(".")[0]), view.name.rpartition(".")[2]
        row = view.weights.shape[1] - 1
        contexts = []
        for head in range(len(view.weights)):
            _, stages = walked(name, Which(view.name, head, row))
            contexts.append(stages["Σ a v"].values[0])
            vector = {symbol: stage.values[0] for symbol, stage in stages.items()}
        agree(torch.stack(contexts), stages["concat"].values, rtol=1e-4, atol=1e-5)
        assert stages["concat"].names == tuple(f"head {head + 1}" for head in range(len(contexts)))
        merged = torch.cat(contexts)
        y = merged if module.output is None else product(module.output, merged)
        if module.output is not None:
            agree(y, vector["y"], rtol=1e-4, atol=1e-5)
        check_residuals(block, part, y, vector)


def product(linear, x):
    return (x @ linear.weight.mT + linear.bias).detach()


ACTIVATIONS = {"ReLU": lambda x: x.clamp(min=0), "SiLU": lambda x: x / (1 + torch.exp(-x))}


def check_residuals(block, part, y, vector):
    """Add and norm in the order of the block, then the feed-forward net; each only where the block has it."""
    pre, post, adds = block.norm == "pre", block.norm == "post", block.has_residual
    stream, letter = (vector["r"], "r") if pre else (vector["x"], "x")
    parts = [(part, y, "y")]
    if block.cross is not None and part == "attention":
        parts.append(("cross", vector["y′"], "y′"))
    if block.feed is not None:
        parts.append(("feed", vector["FFN"], "FFN"))
    for each, given, symbol in parts:
        norm = block.get_submodule(f"{each}_norm")
        if each == "feed":
            z = norm(stream).detach() if pre else stream
            agree(z, vector["z"], rtol=1e-4, atol=1e-4)
            agree(product(block.feed[0], vector["z"]), vector["z W₁"], rtol=1e-4, atol=1e-4)
            (name,) = ACTIVATIONS.keys() & vector.keys()
            agree(ACTIVATIONS[name](vector["z W₁"]), vector[name], rtol=1e-5, atol=1e-6)
            agree(product(block.feed[2], vector[name]), given, rtol=1e-4, atol=1e-4)
        stream = stream + given if adds else given
        summed = f"{letter} + {symbol}" if adds else symbol
        assert (f"{letter} + {symbol}" in vector) == adds
        if adds:
            agree(stream, vector[summed], rtol=1e-4, atol=1e-4)
        assert (f"LN({summed})" in vector) == post
        if post:
            stream = norm(stream).detach()
            agree(stream, vector[f"LN({summed})"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["transformer", "transformer-post", "encoder-writes"])
def test_the_stream_is_followed_to_the_logits(name):
    """From a block below the last: each layer's own output, the last norm, and the readout of it."""
    forward, _ = recorded(name)
    stack = "encoder" if name == "encoder-writes" else "decoder"
    _, stages = walked(name, Which(f"{stack}.blocks.0.attention", 0, 2))
    last = stages["LN(r)"] if "LN(r)" in stages else stages["layer 2"]
    if "LN(r)" in stages:
        norm = forward.model.get_submodule(stack).final_norm
        agree(norm(stages["layer 2"].values).detach(), last.values, rtol=1e-4, atol=1e-5)
    logits = forward.model.readout(last.values[0]).detach()
    agree(logits.topk(5).values, stages["logits"].values[:, 0], rtol=1e-4, atol=1e-5)


def test_a_word_of_the_source_ends_in_the_memory():
    forward, _ = recorded("transformer")
    _, stages = walked("transformer", Which("encoder.blocks.0.attention", 1, 3))
    agree(stages["m"].values[0], forward.memory.states[0, 3])
    assert "logits" not in stages


@pytest.mark.parametrize("name", ALL)
def test_the_likeliest_are_those_of_the_models_own_logits(name):
    """Of a pass that nobody watches or records."""
    forward, views = recorded(name)
    run = subject(name)
    with torch.no_grad():
        logits = forward.forced.logits(run.model)[0]
    vocabulary = vocabulary_of(run)
    for view in views or [None]:
        if view is not None and view.rows not in ("written", "read") and forward.forced.target is not None:
            continue
        row = 0 if view is None else view.weights.shape[1] - 1
        which = Which(row=row) if view is None else Which(view.name, 0, row)
        made, stages = walked(name, which)
        own = logits[0 if forward.forced.target is None else row]
        best = own.topk(min(5, len(own)))
        # A recorded pass has three products where a plain one has one: the last digits of the largest logit may differ.
        last_digits = 2e-6 * max(1.0, float(own.abs().max()))
        agree(best.values, stages["logits"].values[:, 0], rtol=0, atol=last_digits)
        share = PROBABILITIES.get(name, 1e-5)
        agree(torch.softmax(own, -1)[best.indices], stages["p"].values[:, 0], rtol=share, atol=1e-9)
        same = torch.softmax(forward.logits[0 if forward.forced.target is None else row], -1)  # of the recorded pass
        agree(same.topk(len(best.values)).values, stages["p"].values[:, 0], rtol=1e-6, atol=1e-8)
        if (own.topk(min(6, len(own))).values.diff().abs() > 2 * last_digits).all():
            assert stages["p"].names == tuple(vocabulary(best.indices.tolist()))
        assert made.stages[-1].symbol == "p"


def test_rnnsearch_reads_its_deep_output():
    forward, _ = recorded("rnnsearch")
    model = forward.model
    _, stages = walked("rnnsearch", Which("attention", 0, 2))
    together = stages["[s_i; E y_{i−1}; c_i]"].values[0]
    agree(together[:6], stages["s_i"].values[0])
    agree(together[-12:], stages["Σ a v"].values[0], rtol=1e-4, atol=1e-5)
    read = forward.forced.target[1]
    agree(together[6:10], model.target.weight[read].detach())
    pairs = product(model.deep, together).unflatten(0, (2, -1))
    agree(pairs.amax(0), stages["t̃_i"].values[0], rtol=1e-4, atol=1e-5)
    state = forward.recording.steps["cell"][1].after[0, 0]
    agree(state, stages["q"].values[0])  # the query is the state before


def test_luong_reads_its_attentional_state():
    for name in ("luong", "luong-dot-unfed"):
        forward, _ = recorded(name)
        _, stages = walked(name, Which("attention", 0, 3))
        context, state = stages["Σ a v"].values[0], stages["q"].values[0]
        agree(torch.cat([context, state]), stages["[c_t; h_t]"].values[0], rtol=1e-4, atol=1e-5)
        weight = forward.model.attentional.weight
        agree(
            torch.tanh(torch.cat([context, state]) @ weight.mT).detach(), stages["h̃_t"].values[0], rtol=1e-4, atol=1e-5
        )


def test_a_captioner_gates_what_it_sees():
    forward, _ = recorded("captioner")
    _, stages = walked("captioner", Which("decoder.cross", 0, 2))
    beta = torch.sigmoid(stages["f_β(h_{t−1})"].values[0])
    agree(beta * stages["Σ a v"].values[0], stages["ẑ_t"].values[0], rtol=1e-4, atol=1e-5)
    decoder = forward.model.decoder
    word = decoder.words.weight[forward.forced.target[1]]
    total = word + decoder.said(stages["h_t"].values[0]) + decoder.shown(stages["ẑ_t"].values[0])
    agree(total.detach(), stages["E y_{t−1} + L_h h_t + L_z ẑ_t"].values[0], rtol=1e-4, atol=1e-5)


def test_a_pointer_sums_the_places_of_a_word():
    _, stages = walked("pointer", Which("attention", 0, 1))
    weights, places = stages["a"].values[:, 0], stages["a"].names
    for piece, share in zip(stages["p"].names, stages["p"].values[:, 0].tolist(), strict=True):
        own = sum(float(weight) for weight, place in zip(weights, places, strict=True) if place == piece)
        assert share == pytest.approx(own, abs=1e-5), piece


def test_an_lstmn_reads_both_tapes_and_writes_them():
    forward, _ = recorded("lstmn")
    _, stages = walked("lstmn", Which("decoder.layers.1.intra", 0, 3))
    vector = {symbol: stage.values[0] for symbol, stage in stages.items()}
    hidden, memory = vector["Σ a v"].chunk(2)
    step = forward.recording.steps["decoder.layers.1"][3]
    agree(torch.stack([hidden, memory]), step.before[0], rtol=1e-4, atol=1e-5)
    agree(vector["f"] * memory + vector["i"] * vector["ĉ"], vector["c"], rtol=1e-4, atol=1e-5)
    agree(vector["o"] * torch.tanh(vector["c"]), vector["h"], rtol=1e-4, atol=1e-5)
    agree(torch.stack([vector["h"], vector["c"]]), step.after[0], rtol=1e-4, atol=1e-6)
    agree(vector["[γ̃_t; h_t]"][6:], vector["h"], rtol=1e-4, atol=1e-6)


def test_places_of_a_grid_come_back_to_the_map():
    forward, _ = recorded("convnet")
    module = forward.model.attention
    _, stages = walked("convnet", Which("attention", 0, 7))
    kernel = module.output.weight[:, :, 0, 0]
    y = (stages["Σ a v"].values[0] @ kernel.mT + module.output.bias).detach()
    agree(y, stages["y"].values[0], rtol=1e-4, atol=1e-5)
    agree(stages["x"].values[0] + module.gamma.detach() * y, stages["x + γ y"].values[0], rtol=1e-4, atol=1e-5)
    conv = F.conv2d(stages["x"].values[0][None, :, None, None], module.query.weight, module.query.bias)
    agree(conv.flatten().detach(), stages["q"].values[0], rtol=1e-4, atol=1e-5)


def test_a_model_without_attention_is_walked_to_its_words():
    run = subject("rnn")
    made = walk(run, TEXT, word=0, beam=2, longest=5)
    assert (made.view, made.row) == ("", 0)
    assert [stage.symbol for stage in made.stages] == ["s_t", "[s_t; E y_{t−1}; c]", "t̃_t", "logits", "p"]
    labels = walk(subject("han-mean"), item_of("han-mean"))
    assert labels.stages[-1].names[0] in subject("han-mean").labels
