"""RNNsearch against Bahdanau's formulas; the hand-written recurrence against the loop; watching."""

import pytest
import torch
from models import formulas
from models.cases import RECURRENT_CASES, model_of, pair
from oracles import agree

from regard.attention import use_backend, watch
from regard.kernels import rnnsearch_cpu as cpu

CASES = [name for name, case in RECURRENT_CASES.items() if case[0] == "rnnsearch"]


def oracle(model, words, read, seen=None):
    annotations, ends = formulas.annotate(model.encoder, [model.source.weight[word] for word in words])
    size, config = model.config.size, model.config
    both = config.has_recurrent_encoder and config.bidirectional
    summary = annotations[0][size:] if both else ends[-1][0]  # ←h_1, or h_m, or the mean
    first = torch.tanh(model.begin.weight @ summary + model.begin.bias)
    state, hidden = list(first.split(size)), []
    for word in read:
        embedded, before = model.target.weight[word], state
        context, a = formulas.look(model.attention, state[0], annotations)
        state = formulas.cell(model.cell, torch.cat([embedded, context]), state)
        output = before[0] if model.config.output == "previous" else state[0]
        u, v, c = model.deep.weight.split([size, len(embedded), len(context)], 1)
        hidden.append(formulas.maxout(u @ output + v @ embedded + c @ context + model.deep.bias))
        if seen is not None:
            seen.append(a)
    return hidden


@pytest.fixture
def counted(monkeypatch):
    """Return the list of runs of the hand-written recurrence."""
    calls = []
    apply = cpu.Recurrence.apply
    monkeypatch.setattr(cpu.Recurrence, "apply", lambda *args: (calls.append(1), apply(*args))[1])
    return calls


@pytest.mark.parametrize("name", CASES)
def test_equals_the_papers_formulas(name, counted):
    model, (source, target) = model_of(name), pair()
    wanted = formulas.by_sentence(oracle, model, source, target)
    agree(model(source, target)[target.real], wanted, model.parameters())
    assert len(counted) == (model.config.cell in ("gru", "lstm"))


@pytest.mark.parametrize("name", ["rnnsearch", "rnnsearch-lstm", "rnnsearch-previous"])
def test_the_loop_equals_the_papers_formulas(name, counted):
    model, (source, target) = model_of(name), pair()
    model.attention.register_forward_hook(lambda *_: None)
    wanted = formulas.by_sentence(oracle, model, source, target)
    agree(model(source, target)[target.real], wanted, model.parameters())
    assert not counted


def test_a_hook_a_forced_backend_and_autocast_get_the_loop(counted):
    model, (source, target) = model_of("rnnsearch"), pair()
    with use_backend("dense"):
        model(source, target)
    assert not counted
    hook = model.attention.score.query.register_forward_pre_hook(lambda *_: None)
    model(source, target)
    assert not counted
    hook.remove()
    with torch.autocast("cpu", torch.bfloat16):
        model.float()(source, target)
    assert not counted
    model(source, target)
    assert len(counted) == 1


def test_in_float32_by_hand_is_as_good_as_the_loop(counted):
    """Compare both with float64: a sigmoid in place of a tanh loses no relevant precision."""
    model, (source, target) = model_of("rnnsearch"), pair()
    wanted = model(source, target).detach()
    by_hand = model.float()(source, target)
    assert len(counted) == 2
    with use_backend("dense"):
        loop = model(source, target)
    worst = [(one.double() - wanted)[target.real].abs().max() for one in (by_hand, loop)]
    assert worst[0] < max(1e-6, 4 * worst[1])


def test_watching_gives_the_weights_of_every_step(counted):
    model, (source, target) = model_of("rnnsearch"), pair()
    with watch(model) as looks:
        watched = model(source, target)
    assert not counted
    agree(watched[target.real], model(source, target)[target.real])
    formulas.check_weights(oracle, model, source, target, looks["attention"].weights)
    assert not looks["attention"].weights[1, :, 1:].any()
