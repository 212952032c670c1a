"""Views of every kind: weights against passes of their own, windows, picks and titles."""

import math

import pytest
import torch
from inspection.subjects import (
    ALL,
    ATTENTIVE,
    CAPTIONERS,
    REVIEW,
    TEXT,
    TRANSLATORS,
    exhibit_of_subject,
    item_of,
    recorded,
    subject,
)

from regard.data import START, document_texts
from regard.decoding import documents_of, tokens_of
from regard.inspection import exhibit_of
from regard.inspection.collect.exhibit import Addressing
from regard.inspection.collect.views import numbers_of
from regard.models import Pictures

CROSSING = [name for name in (*TRANSLATORS, *CAPTIONERS) if name in ATTENTIVE and not name.startswith("ntm")]


@pytest.mark.parametrize("name", CROSSING)
def test_what_is_written_looks_as_steps_say(name):
    """Coverage, summed step by step over caches, grows by what each row of the last view to the source shows."""
    run, exhibit = subject(name), exhibit_of_subject(name)
    ids = run.tokenizers.source.encode(TEXT)
    source = Pictures(item_of(name)[None]) if name in CAPTIONERS else tokens_of([ids])
    said = [run.tokenizers.target.library.token_to_id(piece) for piece in exhibit.sides["read"].pieces]
    model = run.model
    with torch.no_grad():
        state = model.start(model.encode(source), 1, 20, coverage=True)
        before, rows = state.coverage.clone(), []
        for token in said:
            model.step(torch.tensor([token]), state)
            rows.append((state.coverage - before)[0])
            before = state.coverage.clone()
    view = [each for each in exhibit.views if each.role == "cross"][-1]
    found = view.weights.mean(0)
    torch.testing.assert_close(found[:, : rows[0].shape[-1]], torch.stack(rows), rtol=1e-4, atol=1e-5)
    if ALL[name]["kind"] == "pointer":  # its END is a place of the source, too
        assert exhibit.sides["source"].pieces[-1] == "</s>"


def test_the_first_layer_by_hand():
    """Heads of the encoder, of the decoder's own past, and of a language model."""
    run, exhibit = subject("transformer"), exhibit_of_subject("transformer")
    ids = run.tokenizers.source.encode(TEXT)

    def weights(block, x, causal):
        normed = block.attention_norm(x)
        q, k, _ = block.attention.projection(normed).split(8, -1)
        heads = [
            (q[:, h * 4 : h * 4 + 4] @ k[:, h * 4 : h * 4 + 4].T / 2).masked_fill(
                torch.ones(len(x), len(x)).triu(1).bool() if causal else torch.zeros(len(x), len(x)).bool(), -torch.inf
            )
            for h in range(2)
        ]
        return torch.stack(heads).softmax(-1)

    views = {view.name: view for view in exhibit.views}
    with torch.no_grad():
        x = run.model.source(torch.tensor([ids]))[0]
        expected = weights(run.model.encoder.blocks[0], x, False)
        torch.testing.assert_close(views["encoder.blocks.0.attention"].weights, expected)
        read = [run.tokenizers.target.library.token_to_id(piece) for piece in exhibit.sides["read"].pieces]
        x = run.model.target(torch.tensor([read]))[0]
        expected = weights(run.model.decoder.blocks[0], x, True)
        torch.testing.assert_close(views["decoder.blocks.0.attention"].weights, expected)
        writer = subject("encoder-writes")
        x = writer.model.tokens(torch.tensor([[START, *writer.tokenizers.target.encode(TEXT)]]))[0]
        expected = weights(writer.model.encoder.blocks[0], x, True)
    found = exhibit_of(writer, TEXT)
    torch.testing.assert_close(found.views[0].weights, expected)


def test_titles_are_for_people():
    titles = [view.title for view in exhibit_of_subject("transformer").views]
    assert titles == [
        "encoder, layer 1",
        "encoder, layer 2",
        "decoder, layer 1",
        "decoder, layer 1, to the source",
        "decoder, layer 2",
        "decoder, layer 2, to the source",
    ]
    assert [view.layer for view in exhibit_of_subject("transformer").views] == [0, 1, 0, 0, 1, 1]
    assert exhibit_of_subject("captioner").views[0].title == "decoder, to the picture"
    assert exhibit_of_subject("encoder-writes").views[1].title == "layer 2"


def test_documents_are_weighed_by_words_and_sentences():
    run, exhibit = subject("han"), exhibit_of_subject("han")
    (row,), _ = document_texts.encode_documents([REVIEW], run.tokenizers.source, run.settings.data)
    documents = documents_of([row])
    words, sentences = run.model.weigh_documents(documents)
    lengths = documents.words.lengths.tolist()
    flat = torch.cat([words[i, :length] for i, length in enumerate(lengths)])
    first, second = exhibit.views
    torch.testing.assert_close(first.weights[0, 0], flat)
    torch.testing.assert_close(second.weights[0, 0], sentences[0])
    spread = [float(torch.special.entr(words[i, :length].double()).sum()) for i, length in enumerate(lengths)]
    assert first.entropy.tolist() == [[pytest.approx(sum(spread) / len(spread), rel=1e-4)]]  # in a sentence, on average
    assert [exhibit.sides["source"].sentences.count(i) for i in range(len(lengths))] == lengths
    assert " ".join(exhibit.sides["sentences"].texts) == " ".join(REVIEW.split())
    assert exhibit.sides["source"].texts == tuple(REVIEW.split())
    (said,) = run.classify([REVIEW])
    assert said is not None
    assert exhibit.labels == pytest.approx(said.probabilities)
    assert exhibit.output == said.label
    assert math.exp(exhibit.log_prob) == pytest.approx(said.probability, rel=1e-5)


def test_line_breaks_of_a_document_are_stripped_once():
    sentences = REVIEW.split(" . ")
    exhibit = exhibit_of(subject("han"), "<br />".join(f"{each} . " for each in sentences) + "<BR><br/>")
    assert "<" not in exhibit.title
    assert "br" not in "".join(exhibit.sides["source"].pieces)
    assert exhibit.title.split() == list(exhibit.sides["source"].texts)


def test_places_of_a_picture():
    exhibit = exhibit_of_subject("convnet")
    assert exhibit.sides["places"].grid == (8, 12)
    model, pixels = subject("convnet").model, item_of("convnet")
    with torch.no_grad():
        x = model.norm(model.resnet.stages[0](model.resnet.start(pixels[None]))).relu()
        look = model.attention.look(x)
    torch.testing.assert_close(exhibit.views[0].weights[0], look.weights[0].flatten(2).flatten(0, 1))
    assert torch.equal(exhibit.picture, pixels)
    assert exhibit_of_subject("captioner").sides["places"].grid == (4, 6)
    assert exhibit_of_subject("captioner").sides["places"].pieces[7] == "2,2"


def test_windows_are_told():
    (monotonic,) = exhibit_of_subject("luong-local-m").views
    assert monotonic.radius == 2
    assert monotonic.centre.tolist() == [list(range(monotonic.weights.shape[1]))]
    (predicted,) = exhibit_of_subject("luong-local-p").views
    places = torch.arange(predicted.weights.shape[-1])
    outside = (places - predicted.centre[0][:, None]).abs() > predicted.radius
    assert (predicted.weights[0][outside] == 0).all()
    assert outside.any()
    assert (predicted.weights.sum(-1) <= 1 + 1e-6).all()
    assert "local-p, D = 2" in predicted.how


@pytest.mark.parametrize("name", ["captioner-hard", "captioner-through"])
def test_hard_attention_takes_the_likeliest(name):
    (view,) = exhibit_of_subject(name).views
    assert view.picked.dtype == torch.int64
    assert torch.equal(view.weights.argmax(-1), view.picked)
    assert ((view.weights == 0) | (view.weights == 1)).all()
    assert (view.entropy > 0).any()  # of the probabilities, not of what was taken


CHOSEN = [
    name for name in ATTENTIVE if not name.startswith(("ntm", "transformer-post", "transformer-no", "rnnsearch-b"))
]
FORMS = {
    "transformer": "dot",
    "luong-location": "stored",
    "luong-concat": "additive",
    "rnnsearch": "additive",
    "lstmn": "additive",
    "han": "dot",
    "convnet": "dot",
}


def weights_from(numbers):
    """Softmax of the scores, written down once more with torch alone."""
    if numbers.score == "dot":
        scores = numbers.scale * torch.einsum("hnd,hmd->hnm", numbers.query, numbers.keys)
    elif numbers.score == "additive":
        sums = torch.tanh(numbers.query[:, :, None] + numbers.keys[:, None])
        scores = torch.einsum("hnmd,hd->hnm", sums, numbers.vector.expand(len(sums), -1))
    else:
        scores = numbers.scores
    if numbers.bias is not None:
        scores = scores + numbers.bias
    mask = torch.ones_like(scores, dtype=torch.bool) if numbers.mask is None else numbers.mask.expand_as(scores)
    scores = (scores / numbers.temperature).masked_fill(~mask, -torch.inf)
    if numbers.groups is None:
        weights = scores.softmax(-1)
    else:
        groups = torch.tensor(numbers.groups)
        weights = torch.cat([scores[..., groups == each].softmax(-1) for each in groups.unique()], -1)
    weights = weights.nan_to_num(0.0)  # of a row that may look at nothing
    return weights if numbers.gate is None else weights * numbers.gate


@pytest.mark.parametrize("name", CHOSEN)
def test_weights_follow_from_the_numbers(name):
    forward, views = recorded(name)
    for view in views:
        numbers = numbers_of(forward, view)
        if numbers.weights is not None:  # hard attention takes one key
            assert (numbers.weights - view.weights).abs().max() == 0
            assert torch.equal(weights_from(numbers).argmax(-1), view.picked)
        else:
            assert (weights_from(numbers) - view.weights).abs().max() < 1e-5
    if name in FORMS:
        assert {numbers_of(forward, view).score for view in views} == {FORMS[name]}


@pytest.mark.parametrize("name", ["transformer", "rnnsearch", "lstmn", "han"])
def test_contexts_follow_from_the_values(name):
    forward, views = recorded(name)
    for view in views:
        numbers = numbers_of(forward, view)
        look = forward.looks[view.name]
        if numbers.groups is not None:
            groups = torch.tensor(numbers.groups)
            context = torch.stack([(view.weights * (groups == each)) @ numbers.values for each in groups.unique()])[
                :, 0
            ]
            assert (context - look.context).abs().max() < 1e-5
        elif numbers.query.shape[0] == 1:
            assert ((view.weights @ numbers.values)[0] - look.context[0]).abs().max() < 1e-5
        assert numbers.values.shape[:2] == (len(view.weights), view.weights.shape[2])


def test_an_exhibit_has_them_without_being_asked():
    assert all(view.numbers is not None for view in exhibit_of_subject("transformer").views)
    assert all(isinstance(view.numbers, Addressing) for view in exhibit_of_subject("ntm").views)
