"""Luong's models against the paper's formulas: every score with every span, with and without input feeding."""

import oracles
import pytest
import torch
from models import formulas
from models.cases import RECURRENT_CASES, model_of, pair, sentences
from oracles import agree

from regard.attention import use_backend, watch
from regard.errors import ShapeError

CASES = [name for name, case in RECURRENT_CASES.items() if case[0] == "luong"]


def oracle(model, words, read, seen=None):
    """Equations 3 to 10; a window that covers no word has no weights."""
    config, span = model.config, model.attention.span
    everywhere = lambda t: oracles.everywhere  # noqa: E731
    window = {
        "local-m": lambda t: oracles.local_m(config.radius, t),
        "local-p": lambda t: oracles.local_p(span.hidden.weight, span.v, config.radius),
    }.get(config.span, everywhere)
    words = words.flip(0) if config.reverse else words
    annotations, states = formulas.annotate(model.encoder, [model.source.weight[word] for word in words])
    if config.encoder_name != config.cell:  # s_0 = tanh(W_s h_m), one state per layer
        first = torch.tanh(model.begin.weight @ states[-1][0] + model.begin.bias)
        parts = len(first) // config.layers // config.size
        states = [list(layer.split(config.size)) for layer in first.split(parts * config.size)]
    annotations = annotations[::-1] if config.reverse else annotations
    fed, hidden = torch.zeros(config.size, dtype=torch.float64), []
    for t, word in enumerate(read):
        x = model.target.weight[word]
        h, states = formulas.step_stack(
            model.decoder.layers, torch.cat([x, fed]) if config.input_feeding else x, states
        )
        context, a = formulas.look(model.attention, h, annotations, span=window(t))
        fed = torch.tanh(model.attentional.weight @ torch.cat([context, h]))
        hidden.append(fed)
        if seen is not None:
            seen.append(a)
    return hidden


@pytest.mark.parametrize("name", CASES)
def test_equals_the_papers_formulas(name):
    model, (source, target) = model_of(name), pair()
    wanted = formulas.by_sentence(oracle, model, source, target)
    agree(model(source, target)[target.real], wanted, model.parameters())


@pytest.mark.parametrize("name", ["luong-general-local-p", "luong-unfed-local-m", "luong-concat-global"])
def test_watching_gives_the_weights_of_every_step(name):
    model, (source, target) = model_of(name), pair()
    with watch(model) as looks:
        model(source, target)
    formulas.check_weights(oracle, model, source, target, looks["attention"].weights)


def test_one_query_a_row_takes_the_bare_products_where_nobody_looks_on(monkeypatch):
    model, (source, target) = model_of("luong-general-global"), pair()
    asked = []
    attend = type(model.attention).forward
    monkeypatch.setattr(type(model.attention), "forward", lambda *a, **k: (asked.append(1), attend(*a, **k))[1])
    bare = model(source, target)
    assert not asked
    with use_backend("dense"):
        forced = model(source, target)
    assert len(asked) == target.ids.shape[1]
    agree(bare[target.real], forced[target.real])


def test_unfed_all_queries_look_at_once():
    model, (source, target) = model_of("luong-unfed"), pair()
    calls = []
    model.attention.register_forward_hook(lambda module, args, output: calls.append(output.shape[1]))
    model(source, target)
    assert calls == [6]


def test_long_sentences_take_the_window_kernel_and_agree():
    """40 source words, a window of 3: the kernel does not touch keys beyond it, in steps or in teacher forcing."""
    model = model_of("luong-general-local-m")
    source, target = sentences(11, [40, 33]), sentences(13, [37, 40])
    wanted = formulas.by_sentence(oracle, model, source, target)
    agree(model(source, target)[target.real], wanted)
    state = model.start(model.encode(source), 2, 48)
    with torch.no_grad():
        steps = [model.step(tokens.repeat_interleave(2), state)[0] for tokens in target.ids.unbind(1)]
    for row in (0, 1):
        agree(torch.stack(steps, 1)[row::2][target.real], wanted)


def test_location_says_how_long_a_sentence_may_be():
    model = model_of("luong-location")
    with pytest.raises(ShapeError, match="at most 20"):
        model(sentences(11, [21]), sentences(13, [2]))
