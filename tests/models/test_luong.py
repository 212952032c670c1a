"""Luong's models against the paper's formulas: every score with every span, fed and not."""

import pytest
import torch
from models import formulas
from models.cases import RECURRENT_CASES, model_of, pair, sentences
from oracles import agree

from regard.attention import use_backend, watch
from regard.errors import ShapeError

CASES = [name for name, case in RECURRENT_CASES.items() if case[0] == "luong"]


def scores(model, h, annotations):
    score = model.attention.score
    match model.config.score:
        case "dot":
            return [(h * k).sum() for k in annotations]
        case "general":
            return [h @ score.weight @ k for k in annotations]
        case "concat":
            return [
                (score.v * torch.tanh(score.query.weight @ h + score.key.weight @ k + score.key.bias)).sum()
                for k in annotations
            ]
        case "location":
            return [score.weight[j] @ h for j in range(len(annotations))]


def weights_of(model, h, t, annotations):
    """Equations 3 to 10; a window that touches no word has no weights."""
    e, config, span = scores(model, h, annotations), model.config, model.attention.span
    if config.span == "global":
        centre, seen = None, range(len(e))
    else:
        centre = torch.tensor(float(t), dtype=torch.float64)
        if config.span == "local-p":
            centre = len(e) * torch.sigmoid(span.v @ torch.tanh(span.hidden.weight @ h))
        seen = [j for j in range(len(e)) if abs(j - centre.item()) <= config.radius]
    total = sum(torch.exp(e[j]) for j in seen)
    weights = [torch.exp(e[j]) / total if j in seen else e[j] * 0 for j in range(len(e))]
    if config.span == "local-p":
        sigma = config.radius / 2
        weights = [a * torch.exp(-((j - centre) ** 2) / (2 * sigma**2)) for j, a in enumerate(weights)]
    return weights


def oracle(model, words, read, seen=None):
    config = model.config
    words = words.flip(0) if config.reverse else words
    annotations, states = formulas.annotate(model.encoder, [model.source.weight[word] for word in words])
    if config.encoder_name != config.cell:  # s_0 = tanh(W_s h_m), a state for every layer
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
        a = weights_of(model, h, t, annotations)
        context = sum(weight * k for weight, k in zip(a, annotations, strict=True))
        fed = torch.tanh(model.attentional.weight @ torch.cat([context, h]))
        hidden.append(fed)
        if seen is not None:
            seen.append(torch.stack(a))
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
    """40 source words, a window of 3: the keys beyond it are not touched, in steps as in teacher forcing."""
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
