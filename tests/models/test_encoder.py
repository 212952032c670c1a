"""The classifier job of `encoder`; test_contract.py tests its language model."""

import pytest
import torch
from models.cases import fit

from regard.errors import ArgumentError
from regard.models.contract import Tokens
from regard.models.kinds import build, read_model_config

POOLINGS = ("mean", "attention")


def classifier(pooling="mean", **options):
    table = {"kind": "encoder", "size": 12, "heads": 3, "layers": 2, "hidden": 20, "dropout": 0.0, "pooling": pooling}
    return build("encoder", read_model_config({**table, **options}), 11, 3).double()


def documents(*lengths):
    ids = torch.randint(4, 11, (len(lengths), max(lengths)))
    return Tokens.of(ids, torch.tensor(lengths))


def scores(model, source):
    return model.classify(model.encode(source))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_padding_and_packing_change_nothing(pooling, positions):
    model, source = classifier(pooling, positions=positions, heads=2).eval(), documents(5, 1, 7)
    expected = scores(model, source)
    wider = Tokens.of(torch.cat([source.ids, torch.randint(0, 11, (3, 4))], 1), source.lengths)
    torch.testing.assert_close(scores(model, wider), expected)
    torch.testing.assert_close(scores(model, source.pack()), expected)
    for i, length in enumerate(source.lengths):
        alone = Tokens.of(source.ids[i : i + 1, :length], length[None])
        torch.testing.assert_close(scores(model, alone), expected[i : i + 1])


def test_the_mean_is_over_words_that_are_there():
    model, source = classifier().eval(), documents(4, 2)
    states = model.encode(source).states
    expected = torch.stack([states[0, :4].mean(0), states[1, :2].mean(0)]) @ model.readout.weight.T + model.readout.bias
    torch.testing.assert_close(scores(model, source), expected)


def test_attention_pooling_is_a_softmax_with_one_query():
    model, source = classifier("attention").eval(), documents(4, 2)
    states, query = model.encode(source).states, model.pooling.query.vectors[0]
    pooled = [torch.softmax(s @ query / 12**0.5, 0) @ s for s in (states[0, :4], states[1, :2])]
    torch.testing.assert_close(scores(model, source), model.output(torch.stack(pooled)))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.shapes
def test_gradients_reach_every_parameter(pooling):
    model = classifier(pooling)
    torch.nn.functional.cross_entropy(scores(model, documents(5, 3, 6)), torch.tensor([0, 2, 1])).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize("pooling", POOLINGS)
def test_it_learns_which_word_is_there(pooling):
    """The label depends on one word, anywhere: 0 without 4 and 5, 1 with a 4, 2 with a 5."""
    torch.manual_seed(1)
    model = classifier(pooling, size=16, heads=2).float()

    def draw(count):
        ids, label = torch.randint(6, 11, (count, 7)), torch.randint(0, 3, (count,))
        place = torch.randint(0, 7, (count,))
        ids[label > 0, place[label > 0]] = label[label > 0] + 3
        return Tokens.of(ids, torch.full((count,), 7)), label

    def loss():
        source, label = draw(64)
        return torch.nn.functional.cross_entropy(scores(model, source), label)

    fit(model, loss, 150, 5e-3)
    source, label = draw(500)
    assert (scores(model, source).argmax(-1) == label).float().mean() == 1.0


def test_a_classifier_does_not_write_and_a_language_model_does_not_label():
    model, source = classifier(), documents(3)
    with pytest.raises(ArgumentError, match='expected "language-model"'):
        model.start(model.encode(source))
    with pytest.raises(ArgumentError, match='expected "language-model"'):
        model.decode(model.encode(source), source)
    table = {"kind": "encoder", "job": "language-model", "preset": "tiny"}
    writer = build("encoder", read_model_config(table), 11, 11)
    with pytest.raises(ArgumentError, match='expected "classify"'):
        writer.classify(writer.encode(source))
