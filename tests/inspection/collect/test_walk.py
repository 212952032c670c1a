"""Walks: which word they follow, and the states that come with it."""

import pytest
import torch
import torch.nn.functional as F
from inspection.subjects import ALL, ATTENTIVE, TEXT, TRANSLATORS, item_of, recorded, subject, walk, walked
from oracles import agree

from regard.attention import Heads
from regard.data import START
from regard.decoding import tokens_of
from regard.errors import ArgumentError
from regard.inspection import Which, exhibit_of
from regard.inspection.collect.forward_pass import record_modules
from regard.inspection.collect.walk import gates_of, run_gates, step_gates, vocabulary_of, walk_of
from regard.models import Layer
from regard.models.recurrent import Bidirectional, Stack


def column(stage):
    assert stage.values.shape[1] == 1
    return stage.values[:, 0]


@pytest.mark.parametrize("name", ["ntm", "ntm-lstm"])
def test_a_machines_step_ends_where_its_head_stood(name):
    seen, views = recorded(name)
    for view in views:
        for head in range(len(view.weights)):
            for row in (0, view.weights.shape[1] - 1):
                _, stages = walked(name, view.name, head, row)
                agree(column(stages["w"]), view.weights[head, row], rtol=1e-4, atol=1e-6)
                agree(column(stages["w^c"]), torch.softmax(column(stages["β cos(k, M)"]), 0), rtol=1e-4, atol=1e-6)
                assert ("Σ w M" in stages) == view.name.endswith("read")
    row = next(view for view in views if view.name == "heads.source.read").weights.shape[1] - 1
    _, last = walked(name, "heads.source.read", 0, row)
    agree(last["Σ w M"].values[0], seen.memory.sentence["reads"][0, 0], rtol=1e-4, atol=1e-5)


def test_a_document_is_walked_from_its_words_over_its_sentences_to_its_label():
    seen, views = recorded("han")
    of = {view.name: view for view in views}
    _, stages = walked("han", "words")
    assert [each.part for each in stages.values() if each.symbol.startswith("a")] == [
        "The words of each sentence",
        "The sentences",
    ]
    agree(column(stages["a of sentences"]), of["sentences"].weights[0, 0], rtol=1e-5, atol=1e-6)
    sentences = stages["a of sentences"].names
    assert sentences == seen.sides["sentences"].pieces == stages["Σ a v"].names
    assert stages["a"].words == "weights: they sum to one in each sentence"
    assert column(stages["a"]).sum().item() == pytest.approx(len(sentences), abs=1e-4)
    assert column(stages["a of sentences"]).sum().item() == pytest.approx(1, abs=1e-5)
    document = stages["Σ a v of sentences"].values[0]
    agree(column(stages["a of sentences"]) @ stages["v of sentences"].values, document, rtol=1e-4, atol=1e-5)
    agree(document, stages["document vector v"].values[0], rtol=1e-5, atol=1e-6)


def test_a_pointers_stages_have_the_symbols_of_its_paper():
    _, stages = walked("pointer")
    assert stages["W q"].formula == "W₂ d_i"
    assert stages["U k + b"].formula == "W₁ e_j + b"
    assert stages["e masked"].formula == "u_j, −∞ where it may not look"
    assert stages["p"].formula == "p(y) = Σ p(C_i = j), x_j = y"


# ---- the word


def test_words_and_titles():
    run = subject("transformer")
    exhibit = exhibit_of(run, TEXT, target=TEXT, walk=Which("encoder, layer 2", head=1, word=2))
    side = exhibit.sides["source"]
    assert exhibit.walk.view == "encoder.blocks.1.attention"
    assert side.words[exhibit.walk.row] == 2
    assert side.words[exhibit.walk.row - 1] == 1
    assert exhibit_of(run, TEXT, target=TEXT, walk=True).walk.view == exhibit.aligned
    made = walk(run, TEXT, target=TEXT, view="decoder.blocks.0.attention")
    assert made.row == 1  # START stands before the first word
    assert walk(subject("lstmn"), TEXT, target=TEXT, view="encoder.layers.0.intra").row == 1  # the first sees nothing


def test_what_cannot_be_walked():
    run = subject("transformer")
    for given, said in [
        ({"view": "nowhere"}, "view: 'nowhere' given, expected one of: encoder, layer 1"),
        ({"head": 2}, "head 3: decoder, layer 2, to the source has 2 heads, numbered 1 to 2"),
        ({"row": 90}, "row 91: decoder, layer 2, to the source has"),
        ({"row": -1}, "row 0: decoder, layer 2, to the source has"),
        ({"word": 17}, "word 18: decoder, layer 2, to the source has only 6 words"),
    ]:
        with pytest.raises(ArgumentError, match=said):
            walk(run, TEXT, target=TEXT, **given)
    with pytest.raises(ArgumentError, match="no attention to walk through"):
        walk(subject("rnn"), TEXT, view="attention", longest=3)


# ---- states


@pytest.mark.parametrize("name", ["rnn", "rnn-sutskever", "luong-dot-unfed", "pointer"])
def test_states_are_those_of_the_whole_sentence(name):
    """The decoder's states in one pass over all words equal those computed step by step."""
    run = subject(name)
    seen, _ = recorded(name)
    made = walk(run, TEXT, beam=2, longest=5)
    model, (target,) = run.model, [seen.forced.target]
    with torch.no_grad():
        memory = model.encode(tokens_of([run.tokenizers.source.encode(TEXT)]))
        ids = torch.tensor([[START, *target]])
        x = (model.words if name == "pointer" else model.target)(ids)
        if getattr(run.settings.model, "context", "") == "every":
            x = torch.cat([x, memory.sentence["context"][:, None].expand(-1, ids.shape[1], -1)], -1)
        states, _ = model.decoder(x, memory.sentence["start"])
    read = [state for state in made.states if state.side == "source"]
    written = [state for state in made.states if state.side == "target"]
    if name == "rnn-sutskever":  # the model reads in reverse
        read.reverse()
        assert made.states[0].piece == seen.sides["source"].pieces[-1]
    agree(torch.stack([state.values for state in read]), memory.states[0], rtol=1e-5, atol=1e-6)
    agree(torch.stack([state.values for state in written]), states[0], rtol=1e-4, atol=1e-5)
    assert tuple(state.piece for state in written) == seen.sides["read"].pieces


@pytest.mark.parametrize("name", [*TRANSLATORS, "captioner", "captioner-none", "lstmn-writes", "lstmn-classifies"])
def test_states_arrive_one_by_one(name):
    seen, views = recorded(name)
    made = walk_of(seen, views)
    states = made.states
    if name.startswith("transformer"):
        assert states == ()
        assert bool(made.gates) == (name == "transformer-recurrence")
        return
    written = len(seen.sides["read"].pieces) if "read" in seen.sides else 0
    reads = "source" in seen.sides and name != "rnnsearch-blocks"  # blocks compute layer by layer, without steps
    count = len(seen.memory.states[0]) if reads else 0
    assert len(states) == count + written
    assert all(len(state.values) == subject(name).settings.model.size for state in states if state.side == "target")
    assert all(state.values.isfinite().all() for state in states)


def test_lstmn_states_are_its_hidden_tape():
    seen, views = recorded("lstmn")
    states = [state for state in walk_of(seen, views).states if state.side == "target"]
    with torch.no_grad():
        read = torch.tensor([[START, *seen.forced.target]])
        tapes = seen.model.decoder(seen.model.target(read))
    agree(torch.stack([state.values for state in states]), tapes[0, :, :6], rtol=1e-4, atol=1e-5)


EXACT = {"rtol": 1e-6, "atol": 1e-6}
RECURRENT = [name for name in ALL if not name.startswith(("encoder", "convnet", "captioner-transformer"))]
RECURRENT = [name for name in RECURRENT if not name.startswith("transformer") or name.endswith("recurrence")]


def random(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.7)
    return module.eval()


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 3])
@torch.no_grad()
def test_both_directions_of_every_layer(kind, layers):
    lengths = torch.tensor([7, 1, 4])
    net = random(Bidirectional(kind, 5, 3, layers))
    with record_modules(net) as recording:
        states, ends = net.read(torch.randn(3, 7, 5), lengths)
    assert len(recording.calls) == 2 * layers
    for name, (call,) in recording.calls.items():
        values = run_gates(net.get_submodule(name), call)
        shown, end = call.output
        for row, length in enumerate(lengths.tolist()):
            agree(values["h"][row, :length], shown[row, :length], **EXACT)
            agree(values["h"][row, length - 1], end[row, 0], **EXACT)
            if kind == "lstm":
                agree(values["c"][row, length - 1], end[row, 1], **EXACT)
        check_ranges(values, kind)
    assert states.shape == (3, 7, 6)
    assert ends.shape[1] == layers


def check_ranges(values, kind):
    """Check that the gates have the right names and lie between 0 and 1."""
    symbols = {"rnn": [], "gru": ["r", "z", "h̃"], "lstm": ["i", "f", "o", "ĉ", "c"]}[kind]
    assert list(values) == [*symbols, "h"]
    for symbol in set(symbols) & set("rzifo"):
        assert ((values[symbol] > 0) & (values[symbol] < 1)).all()


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@torch.no_grad()
def test_c_at_every_step_and_from_a_state(kind):
    """An LSTM's c after each word equals its final state for a sentence that ends there."""
    layer = random(Layer(kind, 4, 3))
    x, start = torch.randn(2, 6, 4), torch.randn(2, layer.parts, 3)
    with record_modules(layer) as recording:
        layer(x, start)
    values = run_gates(layer, recording.calls[""][0])
    for count in range(1, 7):
        _, end = layer(x[:, :count], start)
        agree(values["h"][:, count - 1], end[:, 0], **EXACT)
        if kind == "lstm":
            agree(values["c"][:, count - 1], end[:, 1], **EXACT)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@torch.no_grad()
def test_steps_one_by_one(kind):
    stack = random(Stack(kind, 4, 3, 2))
    state = torch.randn(2, 2, stack.each[0].parts, 3)
    states = [state]
    with record_modules(stack) as recording:
        for x in torch.randn(5, 2, 4):
            states.append(stack.step(stack.each[0].project(x), states[-1])[1])
    assert "step" not in stack.each[0].__dict__  # the class's own methods are restored
    for number, layer in enumerate(stack.each):
        values = step_gates(layer, recording.steps[f"layers.{number}"])
        agree(values["h"], torch.stack([each[:, number, 0] for each in states[1:]], 1), **EXACT)
        if kind == "lstm":
            agree(values["c"], torch.stack([each[:, number, 1] for each in states[1:]], 1), **EXACT)
    moved = torch.stack(states[1:])
    assert moved.std() > 0


@pytest.mark.parametrize("name", RECURRENT)
def test_every_layer_of_every_kind(name):
    """Of a whole model: every layer is there, with one h for each word it read, as in the pass itself."""
    forward, _ = recorded(name)
    recording, made = forward.recording, gates_of(forward)
    layers = [each for each, module in forward.model.named_modules() if hasattr(module, "step_method")]
    own = [each for each in layers if not each.endswith(".cell")]  # tapes have a cell
    assert len(made) == len(own) + (name == "ntm-lstm")  # a controller reads, then writes
    for gates in made:
        assert gates.pieces == forward.sides[gates.side].pieces[: len(gates.pieces)]
        assert all(len(values) == len(gates.pieces) for values in gates.values.values())
        assert all(values.isfinite().all() for values in gates.values.values())
    for each, steps in recording.steps.items():
        shown = torch.cat([gates.values["h"] for gates in made if matches(forward, gates, each)])
        agree(shown, torch.stack([step.after[0, 0] for step in steps]), **EXACT)


def matches(forward, gates, name):
    """Whether these are the gates of the named layer, which took its steps one by one."""
    if name == "controller":
        return True
    side = "source" if name.startswith("encoder") or "read" not in forward.sides else "read"
    number = int(name.rpartition(".")[2]) + 1 if name[-1].isdigit() else None
    return gates.side == side and (number is None or f"layer {number}" in gates.title)


@pytest.mark.parametrize("name", ["rnn", "rnn-sutskever", "rnnsearch", "luong", "pointer", "luong-local-m"])
def test_an_encoders_h_is_what_it_left(name):
    """The states are in the order of the text, in whichever direction the encoder read it."""
    forward, _ = recorded(name)
    made = [gates for gates in gates_of(forward) if gates.side == "source"]
    layer = len(made) if "luong" in name or "sutskever" in name else 1
    top = [gates for gates in made if f"layer {layer}" in gates.title]
    states = torch.cat([gates.values["h"] for gates in top], -1)
    agree(states, forward.memory.states[0], rtol=1e-5, atol=1e-6)
    backwards = [False, True] if name == "rnnsearch" else [name in ("rnn-sutskever", "luong-local-m")]
    assert [gates.backwards for gates in top] == backwards


def test_a_document_is_read_sentence_by_sentence():
    forward, _ = recorded("han")
    words = [gates for gates in gates_of(forward) if gates.side == "source"]
    assert [gates.title for gates in words] == ["words, layer 1, from the beginning", "words, layer 1, from the end"]
    call = forward.looks.calls["words"][0]
    annotations = call.args[2]  # the values: h of every word
    lengths = forward.forced.source.words.lengths.tolist()
    expected = torch.cat([annotations[row, :length] for row, length in enumerate(lengths)])
    agree(torch.cat([gates.values["h"] for gates in words], -1), expected, rtol=1e-5, atol=1e-6)


def test_an_lstmn_has_both_tapes():
    forward, views = recorded("lstmn")
    made = walk_of(forward, views).gates
    assert {gates.cell for gates in made} == {"lstmn"}
    source = [gates for gates in made if gates.side == "source"][-1]
    tapes = torch.cat([source.values["h"], source.values["c"]], -1)
    agree(tapes, forward.memory.states[0], rtol=1e-5, atol=1e-6)
    weights = next(view for view in views if view.name == "encoder.layers.1.intra").weights[0]
    agree(weights @ source.values["c"], source.values["c̃"], rtol=1e-4, atol=1e-5)
    agree(weights @ source.values["h"], source.values["h̃"], rtol=1e-4, atol=1e-5)


HEADS = [name for name in ATTENTIVE if name.startswith(("transformer", "encoder", "captioner-transformer"))]
# A probability changes by the same share as its logit. Without norms logits grow from layer to layer: to tens without a
# residual stream, and to thousands with one, where the last digit of a float is a thousandth.
PROBABILITIES = {"transformer-bare": 5e-5, "transformer-no-norm": 5e-3}


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
            _, stages = walked(name, view.name, head, row)
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
    """Check add and norm in the block's order, then the feed-forward net; each only if the block has it."""
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
    """Starting below the last block: each layer's output, the last norm, and its readout are right."""
    forward, _ = recorded(name)
    stack = "encoder" if name == "encoder-writes" else "decoder"
    _, stages = walked(name, f"{stack}.blocks.0.attention", 0, 2)
    last = stages["LN(r)"] if "LN(r)" in stages else stages["layer 2"]
    if "LN(r)" in stages:
        norm = forward.model.get_submodule(stack).final_norm
        agree(norm(stages["layer 2"].values).detach(), last.values, rtol=1e-4, atol=1e-5)
    logits = forward.model.readout(last.values[0]).detach()
    agree(logits.topk(5).values, stages["logits"].values[:, 0], rtol=1e-4, atol=1e-5)


def test_a_word_of_the_source_ends_in_the_memory():
    forward, _ = recorded("transformer")
    _, stages = walked("transformer", "encoder.blocks.0.attention", 1, 3)
    agree(stages["m"].values[0], forward.memory.states[0, 3])
    assert "logits" not in stages


@pytest.mark.parametrize("name", ALL)
def test_the_likeliest_are_those_of_the_models_own_logits(name):
    """Compare with a pass without hooks or recording."""
    forward, views = recorded(name)
    run = subject(name)
    with torch.no_grad():
        logits = forward.forced.logits(run.model)[0]
    vocabulary = vocabulary_of(run)
    for view in views or [None]:
        if view is not None and view.rows not in ("written", "read") and forward.forced.target is not None:
            continue
        row = 0 if view is None else view.weights.shape[1] - 1
        made, stages = walked(name, *((None, None) if view is None else (view.name, 0)), row)
        own = logits[0 if forward.forced.target is None else row]
        best = own.topk(min(5, len(own)))
        # A recorded pass multiplies three times where a plain one does once: the largest logit's last digits may vary.
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
    _, stages = walked("rnnsearch", "attention", 0, 2)
    together = stages["[s_i; E y_{i−1}; c_i]"].values[0]
    agree(together[:6], stages["s_i"].values[0])
    agree(together[-12:], stages["Σ a v"].values[0], rtol=1e-4, atol=1e-5)
    read = forward.forced.target[1]
    agree(together[6:10], model.target.weight[read].detach())
    pairs = product(model.deep, together).unflatten(0, (2, -1))
    agree(pairs.amax(0), stages["t̃_i"].values[0], rtol=1e-4, atol=1e-5)
    state = forward.recording.steps["cell"][1].after[0, 0]
    agree(state, stages["q"].values[0])  # the query is the previous state


def test_luong_reads_its_attentional_state():
    for name in ("luong", "luong-dot-unfed"):
        forward, _ = recorded(name)
        _, stages = walked(name, "attention", 0, 3)
        context, state = stages["Σ a v"].values[0], stages["q"].values[0]
        agree(torch.cat([context, state]), stages["[c_t; h_t]"].values[0], rtol=1e-4, atol=1e-5)
        weight = forward.model.attentional.weight
        attentional = torch.tanh(torch.cat([context, state]) @ weight.mT).detach()
        agree(attentional, stages["h̃_t"].values[0], rtol=1e-4, atol=1e-5)


def test_a_captioner_gates_what_it_sees():
    forward, _ = recorded("captioner")
    _, stages = walked("captioner", "decoder.cross", 0, 2)
    beta = torch.sigmoid(stages["f_β(h_{t−1})"].values[0])
    agree(beta * stages["Σ a v"].values[0], stages["ẑ_t"].values[0], rtol=1e-4, atol=1e-5)
    decoder = forward.model.decoder
    word = decoder.words.weight[forward.forced.target[1]]
    total = word + decoder.said(stages["h_t"].values[0]) + decoder.shown(stages["ẑ_t"].values[0])
    agree(total.detach(), stages["E y_{t−1} + L_h h_t + L_z ẑ_t"].values[0], rtol=1e-4, atol=1e-5)


def test_a_pointer_sums_the_places_of_a_word():
    _, stages = walked("pointer", "attention", 0, 1)
    weights, places = stages["a"].values[:, 0], stages["a"].names
    for piece, share in zip(stages["p"].names, stages["p"].values[:, 0].tolist(), strict=True):
        own = sum(float(weight) for weight, place in zip(weights, places, strict=True) if place == piece)
        assert share == pytest.approx(own, abs=1e-5), piece


def test_an_lstmn_reads_both_tapes_and_writes_them():
    forward, _ = recorded("lstmn")
    _, stages = walked("lstmn", "decoder.layers.1.intra", 0, 3)
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
    _, stages = walked("convnet", "attention", 0, 7)
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
