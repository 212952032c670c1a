"""The LSTMN against the paper's formulas: both fusions, the three jobs, fused and in plain loops."""

import pytest
import torch
from models import formulas
from models.cases import CASES, lstmn, model_of, pair, row, sentences
from oracles import agree, gradients, sum_of

from regard.attention import use_backend, watch
from regard.errors import ArgumentError
from regard.kernels import lstmn_cpu as cpu
from regard.models.contract import Tokens
from regard.models.kinds import build

NAMES = [name for name, case in CASES.items() if case[0] == "lstmn"]
every_name = pytest.mark.parametrize("name", NAMES)
FAULTS = ("itself", "no summary", "fresh summary", "last memory", "even weights", "whole memory", "stale source")


def read(attention, x, summary, entries, tapes, seen=None, fault=None):
    """Return the summaries of all tapes under one set of weights; zeros if there is no entry."""
    if not entries:
        if seen is not None:
            seen.append([])
        return [torch.zeros(len(summary), dtype=torch.float64) for _ in tapes]
    weights = formulas.look(attention, torch.cat([x, summary]), entries).weights
    if fault == "even weights":
        weights = torch.full_like(weights, 1 / len(weights))
    if seen is not None:
        seen.append(list(weights))
    return [sum_of(a * one for a, one in zip(weights, tape, strict=True)) for tape in tapes]


def write(layer, xs, added=None, seen=None, fault=None):
    """Return the two tapes by equations 5 to 9 of the paper, or 1 to 4 without attention."""
    net, d = layer.cell.net, layer.size
    zero = torch.zeros(d, dtype=torch.float64)
    hidden, memory, summary = [], [], zero
    for t, x in enumerate(xs):
        if layer.intra is None:
            h, c = (hidden[-1], memory[-1]) if t else (zero, zero)
        else:
            first = [zero] if fault == "itself" else []
            asked = zero if fault == "no summary" else summary
            if fault == "fresh summary" and t:
                asked = hidden[-1]
            h, c = read(layer.intra, x, asked, first + hidden, (first + hidden, first + memory), seen, fault)
            if fault == "last memory" and t:
                c = memory[-1]
        summary = h
        i, f, g, o = (net.weight_ih_l0 @ x + net.bias_ih_l0 + net.weight_hh_l0 @ h + net.bias_hh_l0).view(4, d)
        proposed = torch.tanh(g)
        c = proposed / (1 + torch.exp(-i)) + c / (1 + torch.exp(-f))
        if added is not None:
            c = c + added[t]
        memory.append(c)
        hidden.append(torch.tanh(c) / (1 + torch.exp(-o)))
    return hidden, memory


def write_all(layers, xs, **options):
    for layer in layers[:-1]:
        xs, _ = write(layer, xs)
    return write(layers[-1], xs, **options)


def source_of(model, words):
    return write_all(list(model.encoder.layers), [model.source.weight[word] for word in words])


def oracle(model, words, tokens, seen=None, intra=None, fault=None):
    """Return the readout's input after each token (section 4); `seen` and `intra` collect the weights."""
    config = model.config
    *below, top = model.decoder.layers
    xs = [model.target.weight[token] for token in tokens]
    for layer in below:
        xs, _ = write(layer, xs)
    if config.job == "language-model":
        return write(top, xs, seen=intra, fault=fault)[0]
    gamma, alpha = source_of(model, words)

    if config.fusion == "shallow":
        hidden, _ = write(top, xs, seen=intra, fault=fault)
        none = torch.zeros(0, dtype=torch.float64)
        found = [read(model.attention, h, none, gamma, (gamma,), seen)[0] for h in hidden]
        return attended(model, found, hidden)
    found, added, summary = [], [], torch.zeros(config.size, dtype=torch.float64)
    for x in xs:
        one, cell = read(model.attention, x, summary, gamma, (gamma, alpha), seen)
        r = 1 / (1 + torch.exp(-(model.gate.weight @ torch.cat([one, x]) + model.gate.bias)))
        added.append(cell if fault == "whole memory" else r * cell)
        found.append(one)
        summary = summary if fault == "stale source" else one
    return attended(model, found, write(top, xs, added=added, seen=intra, fault=fault)[0])


def attended(model, found, hidden):
    return [torch.tanh(model.attentional.weight @ torch.cat(both)) for both in zip(found, hidden, strict=True)]


def counted(monkeypatch):
    """Return the list of calls of the hand-written recurrences."""
    calls = []
    for name in ("run_tapes", "read_source"):
        made = getattr(cpu, name)
        monkeypatch.setattr(cpu, name, lambda *args, made=made, name=name: (calls.append(name), made(*args))[1])
    return calls


@every_name
def test_equals_the_papers_formulas_by_hand(name, monkeypatch):
    model, (source, target), calls = model_of(name), pair(), counted(monkeypatch)
    wanted = formulas.by_sentence(oracle, model, source, target)
    agree(model(source, target)[target.real], wanted, model.parameters())
    sides = 1 if model.config.job == "language-model" else 2
    assert calls.count("run_tapes") == sides * model.config.layers
    assert calls.count("read_source") == int(sides == 2 and model.config.fusion == "deep")


@every_name
def test_equals_the_papers_formulas_in_plain_loops(name, monkeypatch):
    model, (source, target), calls = model_of(name), pair(), counted(monkeypatch)
    wanted = formulas.by_sentence(oracle, model, source, target)
    with use_backend("dense"):
        agree(model(source, target)[target.real], wanted, model.parameters())
    assert calls == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_would_be_noticed(fault):
    """The formulas with one fault differ from the model."""
    model, (source, target) = model_of("lstmn-deep"), pair()
    wrong = formulas.by_sentence(lambda *args: oracle(*args, fault=fault), model, source, target)
    with pytest.raises(AssertionError, match="not close"):
        agree(model(source, target)[target.real], wrong)


def test_long_sentences_by_hand_equal_the_loop():
    model = model_of("lstmn-two-layers")
    source, target = sentences(11, [40, 33]), sentences(13, [37, 40])
    by_hand = model(source, target)[target.real]
    with use_backend("dense"):
        agree(by_hand, model(source, target)[target.real], model.parameters())


def test_in_float32_both_ways_agree():
    """A sigmoid in place of tanh costs a few units in the last place."""
    model, (source, target) = model_of("lstmn-deep").float(), pair()
    with use_backend("dense"):
        wanted = model(source, target)[target.real]
    agree(model(source, target)[target.real], wanted, model.parameters(), rtol=1e-4, atol=1e-5)


def test_only_what_is_asked_for_gets_a_gradient():
    """Frozen parameters and inputs that need no gradients get none."""
    model, (source, target) = model_of("lstmn-deep"), pair()
    for part in (model.encoder, model.source, model.target):
        part.requires_grad_(False)
    leaves = [parameter for parameter in model.parameters() if parameter.requires_grad]
    agree(model(source, target)[target.real], formulas.by_sentence(oracle, model, source, target), leaves)


# ---- attention weights


@pytest.mark.parametrize("name", ["lstmn", "lstmn-deep"])
def test_watching_gives_the_weights_of_every_step(name):
    model, (source, target) = model_of(name), pair()
    assert model.cross_attentions == ["attention"]
    with watch(model) as looks:
        model(source, target)
    across, back = looks["attention"].weights, looks["decoder.layers.0.intra"].weights
    assert across.shape == (3, 6, 5)
    assert back.shape == (3, 6, 5)
    for index, (m, n) in enumerate(zip(source.lengths.tolist(), target.lengths.tolist(), strict=True)):
        seen, intra = [], []
        oracle(model, source.ids[index, :m], target.ids[index, :n], seen, intra)
        agree(across[index, :n, :m], torch.stack([torch.stack(one) for one in seen]))
        for t, one in enumerate(intra):
            assert len(one) == t
            assert not back[index, t, t:].any()  # only earlier positions
            if t:
                agree(back[index, t, :t], torch.stack(one))


@pytest.mark.parametrize("intra", [True, False])
def test_the_first_word_has_nothing_to_look_at(intra):
    """A one-word sentence is an LSTM's first step."""
    model = build("lstmn", lstmn(intra=intra), 11, 13).double()
    layer, x = model.encoder.layers[0], torch.randn(3, 1, 3, dtype=torch.float64)
    zero = [torch.zeros(5, dtype=torch.float64)] * 2
    wanted = torch.stack([torch.cat(formulas.cell(layer.cell, one[0], zero)) for one in x])
    agree(layer(x)[:, 0], wanted)
    with watch(layer) as looks:
        layer(x)
    if intra:
        assert not looks["intra"].weights.any()


def test_without_attention_it_is_torchs_lstm():
    model = build("lstmn", lstmn(intra=False, job="classify"), 11, 3).double()
    layer, x = model.encoder.layers[0], torch.randn(3, 7, 3, dtype=torch.float64)
    agree(layer(x)[..., :5], layer.cell.net(x)[0], layer.parameters())


# ---- states


def test_tapes_are_caches_of_a_fixed_size_with_projected_keys():
    model = model_of("lstmn-language-model")
    state = model.start(model.encode(pair()[0]), size=4)
    past = state.row["past.0"]
    assert past.keys.shape == (3, 4, 7)
    assert past.values.shape == (3, 4, 10)
    with torch.no_grad():
        for _ in range(4):
            model.step(torch.tensor([1, 2, 3]), state)
    assert past.length.tolist() == [4, 4, 4]


# ---- the other jobs


def classifier(**options):
    model = build("lstmn", lstmn(job="classify", dropout=0.0, **options), 11, 3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.shapes
def test_a_classifier_equals_the_formulas(layers):
    model, source = classifier(layers=layers), sentences(11, [5, 1, 3])
    wanted = []
    for index, length in enumerate(source.lengths.tolist()):
        hidden, _ = source_of(model, source.ids[index, :length])
        inner = model.hidden.weight @ (sum_of(hidden) / length) + model.hidden.bias
        wanted.append(model.readout.weight @ inner.clamp(min=0) + model.readout.bias)
    agree(model.classify(model.encode(source)), torch.stack(wanted), model.parameters())


def test_padding_and_packing_change_no_label():
    model, source = classifier(), sentences(11, [5, 1, 3])
    wanted = model.classify(model.encode(source))
    wider = Tokens.of(torch.cat([source.ids, torch.randint(0, 11, (3, 4))], 1), source.lengths)
    agree(model.classify(model.encode(wider)), wanted, model.parameters())
    agree(model.classify(model.encode(source.pack())), wanted, model.parameters())
    for index in range(3):
        agree(model.classify(model.encode(row(source, index)))[0], wanted[index])


def test_a_language_model_has_no_source():
    model = model_of("lstmn-language-model")
    memory = model.encode(pair()[0])
    assert memory.states.shape[:2] == (3, 0)
    assert not hasattr(model, "source")
    with pytest.raises(ArgumentError, match="no source to cover"):
        model.start(memory, coverage=True)


def test_a_classifier_does_not_write_and_the_others_name_no_label():
    model, source = classifier(), sentences(11, [3])
    for call in (lambda: model.start(model.encode(source)), lambda: model.decode(model.encode(source), source)):
        with pytest.raises(ArgumentError, match='expected "translate" or "language-model"'):
            call()
    for name in ("lstmn", "lstmn-language-model"):
        writer = model_of(name)
        with pytest.raises(ArgumentError, match='expected "classify"'):
            writer.classify(writer.encode(source))


@pytest.mark.parametrize("name", ["lstmn", "lstmn-deep", "lstmn-plain"])
def test_half_precision_stays_out_of_the_recurrence(name):
    """Under autocast the tapes are float32, and the scores close to those without it."""
    model, (source, target) = model_of(name).float(), pair()
    wanted = model(source, target)[target.real]
    with torch.autocast("cpu", torch.bfloat16):
        memory = model.encode(source)
        assert memory.states.dtype == torch.float32
        got = model.output(model.decode(memory, target)[0])[target.real]
    torch.testing.assert_close(got.float(), wanted, rtol=0.1, atol=0.3)
    assert all(
        one.isfinite().all() for one in gradients(got.float(), list(model.parameters()), torch.ones_like(wanted))
    )
