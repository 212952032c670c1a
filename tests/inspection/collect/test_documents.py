"""The words that a label hangs on: what the model weighs, put together to words."""

import pytest
import torch

from regard.data import DataSettings, train
from regard.decoding import documents_of
from regard.inspection.collect.sides import weigh
from regard.models import build, read_model_config

TEXTS = ["The soup was good. I will come again!", "", "Bad", "wonderfully delicious"]


def small(size):
    table = {"kind": "han", "size": 4, "embedding": 5, "hidden": 6}
    model = build("han", read_model_config(table), size, 2).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.7)
    return model


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
def test_words_and_their_weights(kind):
    tokenizer, data = train(TEXTS * 3, kind), DataSettings()
    model = small(tokenizer.size)
    found = weigh(model, tokenizer, data, TEXTS)
    assert [[each.words for each in document] for document in found] == [
        [["The", "soup", "was", "good."], ["I", "will", "come", "again!"]],
        [],
        [["Bad"]],
        [["wonderfully", "delicious"]],
    ]
    for document in found:
        assert not document or sum(each.weight for each in document) == pytest.approx(1)
        assert all(sum(each.weights) == pytest.approx(1) for each in document)
        assert not document or sum(sum(each.counts) for each in document) == pytest.approx(1)
    if kind == "word":
        row = [*tokenizer.encode("The soup was good."), 2, *tokenizer.encode("I will come again!"), 2]
        words, sentences = model.weigh_documents(documents_of([row]))
        assert [each.weight for each in found[0]] == pytest.approx(sentences[0].tolist())
        assert [each.weights for each in found[0]] == [pytest.approx(weights) for weights in words.tolist()]


def test_a_splitter_of_ones_own():
    tokenizer = train(TEXTS * 3, "word")
    found = weigh(small(tokenizer.size), tokenizer, DataSettings(), TEXTS[:1], lambda text: text.split(" was "))
    assert [each.words for each in found[0]] == [["The", "soup"], ["good.", "I", "will", "come", "again!"]]
