"""Where captioners look, against weights of single words and planted looks; and how much words of documents count."""

import pytest
import torch
from models.pictured import captioner, pictures
from oracles import agree

from regard.data import START, DataSettings, generate, train
from regard.decoding import documents_of
from regard.errors import ArgumentError
from regard.inspection.collect.grounding import attention_maps, grounding, on_box, weigh
from regard.models import Pictures, build, read_model_config

TEXTS = ["The soup was good. I will come again!", "", "Bad", "wonderfully delicious"]
SCENES = list(generate("scenes", 12, size=64))


@pytest.fixture(scope="module")
def tokenizer():
    return train([each.target for each in SCENES], "word")


def draw_without_ties(name, tokenizer):
    """Draw a captioner and pictures with distinct positions: between equal ones the best score would be arbitrary."""
    for _ in range(100):
        model, source = captioner(name, words=tokenizer.size), pictures(2)
        with torch.no_grad():
            states = model.encode(source).states
        if (torch.cdist(states, states) + torch.eye(states.shape[1])).min() > 1e-3:
            return model, source
    raise AssertionError("no picture whose places differ")


@pytest.mark.parametrize("name", ["soft", "hard", "straight-through", "transformer"])
def test_a_word_looks_where_it_was_written_from(name, tokenizer):
    """A word's weights are those of the step that reads the word before it."""
    model, source = draw_without_ties(name, tokenizer)
    texts = [SCENES[0].target, SCENES[1].target]
    found = attention_maps(model, tokenizer, source.pixels, texts)
    for pixels, text, seen in zip(source.pixels, texts, found, strict=True):
        ids = tokenizer.encode(text)
        assert seen.shape == (len(text.split()), 2, 3)
        state = model.start(model.encode(Pictures(pixels[None])), 1, 40, coverage=True)
        before = torch.zeros(1, 6, dtype=torch.float64)
        for token, word in zip([START, *ids[:-1]], seen, strict=True):
            with torch.no_grad():
                model.step(torch.tensor([token]), state)
            agree(word.flatten().double(), (state.coverage - before)[0], rtol=1e-4, atol=1e-5)
            before = state.coverage.clone()


def test_places_on_a_box():
    """With 4 × 4 positions of 16 pixels the middles are 8, 24, 40, 56; a box from 20 to 44 grows to 12 to 52."""
    found = on_box((20, 0, 44, 1), (4, 4), 64)
    assert found.tolist() == [[False, True, True, False], *([[False] * 4] * 3)]
    assert on_box((0, 0, 64, 64), (2, 5), 64).all()


def test_looks_are_counted_by_shapes(tokenizer, monkeypatch):
    """All weight on the word's own shape is right, on another shape wrong, and on a corner rarely right."""
    model = captioner("soft", words=tokenizer.size, stages=3).float()
    wanted: list[torch.Tensor] = []

    def seen(aim):
        wanted.clear()
        for scene in SCENES:
            weights = torch.zeros(len(scene.speaks_of), 8, 8)
            for word, shape in enumerate(scene.speaks_of):
                left, top, right, bottom = scene.boxes[aim(shape, len(scene.boxes))]
                weights[word, int((top + bottom) / 2 // 8), int((left + right) / 2 // 8)] = 1.0
            wanted.append(weights)
        return grounding(model, tokenizer, SCENES)

    monkeypatch.setattr("regard.inspection.collect.grounding.attention_maps", lambda *given: wanted)
    told = sum(shape >= 0 for scene in SCENES for shape in scene.speaks_of)
    own = seen(lambda shape, count: shape)
    assert (own.words, own.right, own.share) == (told, told, 1.0)
    other = seen(lambda shape, count: (shape + 1) % count)
    alone = sum(shape >= 0 for scene in SCENES if len(scene.boxes) == 1 for shape in scene.speaks_of)
    assert alone <= other.right < told / 2
    assert 0.02 < own.chance < 0.3
    assert "by chance" in str(own)


def test_a_new_model_is_right_by_chance(tokenizer):
    found = grounding(captioner("soft", words=tokenizer.size, stages=3, scale=None).float(), tokenizer, SCENES)
    assert found.share < 0.6


def test_what_cannot_be_looked_at_is_refused(tokenizer):
    with pytest.raises(ArgumentError, match="no attention in it"):
        attention_maps(captioner("none"), tokenizer, pictures(1).pixels, ["a"])
    with pytest.raises(ArgumentError, match="2 given, expected one for each of 1"):
        attention_maps(captioner("soft"), tokenizer, pictures(1).pixels, ["a", "b"])


# ---- documents


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
