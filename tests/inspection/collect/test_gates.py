"""Gates computed again from a layer's own weights: the states that they give are the layer's, at every step."""

import pytest
import torch
from inspection.subjects import ALL, recorded, subject
from oracles import agree

from regard.inspection.collect.forward_pass import record_modules
from regard.inspection.collect.gates import gates_of, run_gates, step_gates
from regard.inspection.collect.walk import walk_of
from regard.models import Layer
from regard.models.recurrent import Bidirectional, Stack

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
    """Gates are between 0 and 1, by the names that they have."""
    symbols = {"rnn": [], "gru": ["r", "z", "h̃"], "lstm": ["i", "f", "o", "ĉ", "c"]}[kind]
    assert list(values) == [*symbols, "h"]
    for symbol in set(symbols) & set("rzifo"):
        assert ((values[symbol] > 0) & (values[symbol] < 1)).all()


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@torch.no_grad()
def test_c_at_every_step_and_from_a_state(kind):
    """An LSTM's c after each word is the end of a sentence that stops there."""
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
    assert "step" not in stack.each[0].__dict__  # the methods are the class's own again
    for number, layer in enumerate(stack.each):
        values = step_gates(layer, recording.steps[f"layers.{number}"])
        agree(values["h"], torch.stack([each[:, number, 0] for each in states[1:]], 1), **EXACT)
        if kind == "lstm":
            agree(values["c"], torch.stack([each[:, number, 1] for each in states[1:]], 1), **EXACT)
    moved = torch.stack(states[1:])
    assert moved.std() > 0


@pytest.mark.parametrize("name", RECURRENT)
def test_every_layer_of_every_kind(name):
    """Of a whole model: all layers that it has, as many words as it read, h as the pass itself had it."""
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
    """Whether these are the gates of the layer of a name that took its steps one by one."""
    if name == "controller":
        return True
    side = "source" if name.startswith("encoder") or "read" not in forward.sides else "read"
    number = int(name.rpartition(".")[2]) + 1 if name[-1].isdigit() else None
    return gates.side == side and (number is None or f"layer {number}" in gates.title)


@pytest.mark.parametrize("name", ["rnn", "rnn-sutskever", "rnnsearch", "luong", "pointer", "luong-local-m"])
def test_an_encoders_h_is_what_it_left(name):
    """In the order of the text, whichever way it was read."""
    forward, _ = recorded(name)
    made = [gates for gates in gates_of(forward) if gates.side == "source"]
    top = [
        gates for gates in made if f"layer {len(made) if 'luong' in name or 'sutskever' in name else 1}" in gates.title
    ]
    states = torch.cat([gates.values["h"] for gates in top], -1)
    agree(states, forward.memory.states[0], rtol=1e-5, atol=1e-6)
    assert [gates.backwards for gates in top] == (
        [False, True] if name == "rnnsearch" else [name in ("rnn-sutskever", "luong-local-m")]
    )


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


def test_a_transformer_has_none():
    forward, views = recorded("transformer")
    assert walk_of(forward, views).gates == ()
    assert subject("transformer").settings.kind == "transformer"
