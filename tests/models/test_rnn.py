"""The fixed-context model against Cho's and Sutskever's formulas."""

import pytest
import torch
from models import formulas
from models.cases import RECURRENT_CASES, model_of, pair
from oracles import agree

CASES = [name for name, case in RECURRENT_CASES.items() if case[0] == "rnn"]


def oracle(model, words, read):
    config = model.config
    words = words.flip(0) if config.reverse else words
    _, ends = formulas.read_stack(model.encoder.layers, [model.source.weight[word] for word in words])
    context, every = ends[-1][0], config.context == "every"
    if config.start == "zero":
        states = [[part * 0 for part in end] for end in ends]
    elif config.start == "copy":
        states = ends
    else:
        mapped = [torch.tanh(v.weight @ end[0] + v.bias) for v, end in zip(model.begin, ends, strict=True)]
        states = [list(one.chunk(len(ends[0]))) for one in mapped]
    hidden = []
    for word in read:
        embedded = model.target.weight[word]
        x = torch.cat([embedded, context]) if every else embedded
        top, states = formulas.step_stack(model.decoder.layers, x, states)
        if every:
            u, v, c = model.deep.weight.split([len(top), len(embedded), len(context)], 1)
            top = formulas.maxout(u @ top + v @ embedded + c @ context + model.deep.bias)
        hidden.append(top)
    return hidden


@pytest.mark.parametrize("name", CASES)
def test_equals_the_papers_formulas(name):
    model, (source, target) = model_of(name), pair()
    wanted = formulas.by_sentence(oracle, model, source, target)
    agree(model(source, target)[target.real], wanted, model.parameters())


@pytest.mark.parametrize("name", ["rnn-sutskever", "rnn-cho-zero"])
def test_reversed_states_stand_in_the_order_of_the_source(name):
    model, (source, _) = model_of(name), pair()
    words = source.ids[0, :5].flip(0)
    states, _ = formulas.read_stack(model.encoder.layers, [model.source.weight[word] for word in words])
    agree(model.encode(source).states[0, :5], torch.stack(states[::-1]))


def test_an_empty_source_leaves_the_decoder_with_nothing():
    from regard.models.contract import Tokens

    model, (_, target) = model_of("rnn-sutskever"), pair()
    source = Tokens.of(torch.randint(9, (3, 4)), torch.tensor([0, 4, 2]))
    agree(model.encode(source).sentence["start"][0], torch.zeros(2, 2, 5, dtype=torch.float64))
    assert model(source, target).isfinite().all()
