"""Hierarchical attention against the paper's formulas, one word and one sentence at a time."""

import pytest
import torch
from models.cases import fit
from models.formulas import annotate

from regard.attention import watch
from regard.decoding import documents_of
from regard.errors import ArgumentError
from regard.models.contract import Documents, Tokens
from regard.models.han import group_by_length
from regard.models.kinds import build, complete_table, read_model_config

WORDS, LABELS, END = 11, 3, 2
SHAPES = {
    "several": [[3, 1, 5], [2], [4, 4]],
    "one word": [[1]],
    "far apart": [[1, 40, 2], [17, 1], [3]],  # several buckets
    "all alike": [[4, 4], [4], [4, 4, 4]],
}


def han(**options):
    table = {"kind": "han", "size": 3, "embedding": 4, "hidden": 5, "dropout": 0.0, **options}
    model = build("han", read_model_config(table), WORDS, LABELS).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.7)
    return model


def rows_of(shape):
    """Return encoded documents with these numbers of words per sentence."""
    return [[i for count in each for i in [*torch.randint(3, WORDS, (count,)).tolist(), END]] for each in shape]


def scores(model, documents):
    return model.classify(model.encode(documents))


def sentences_of(row):
    found, sentence = [], []
    for i in row:
        if i == END:
            found, sentence = [*found, sentence], []
        else:
            sentence.append(i)
    return found


def summed(hs, layer, vector, pooling):
    """Equations 5 to 7: u = tanh(W h + b), α ∝ exp(uᵀ u_w), Σ α h."""
    if pooling == "max":
        return torch.stack([max(h[i] for h in hs) for i in range(len(hs[0]))]), None
    if vector is None:
        return sum(hs) / len(hs), None
    us = [torch.tanh(layer.weight @ h + layer.bias) for h in hs]
    es = [torch.exp(u @ vector) for u in us]
    weights = [e / sum(es) for e in es]
    return sum(a * h for a, h in zip(weights, hs, strict=True)), weights


def by_the_paper(model, row):
    """Return the scores of one document, and the weights of its words and of its sentences."""
    attends, pooling = model.config.attention, model.config.pooling
    vectors, weights = [], []
    if model.config.levels == 1:
        hs, _ = annotate(model.word_states, [model.embedding.weight[i] for i in row if i != END])
        layer, query = (model.word_layer, model.pooling.query.vectors[0]) if attends else (None, None)
        document, own = summed(hs, layer, query, pooling)
        return model.readout.weight @ document + model.readout.bias, own, None
    for sentence in sentences_of(row):
        hs, _ = annotate(model.word_states, [model.embedding.weight[i] for i in sentence])
        layer, query = (model.word_layer, model.words.query.vectors[0]) if attends else (None, None)
        vector, own = summed(hs, layer, query, pooling)
        vectors, weights = [*vectors, vector], [*weights, own]
    hs, _ = annotate(model.sentence_states, vectors)
    layer, query = (model.sentence_layer, model.sentences.query.vectors[0]) if attends else (None, None)
    document, own = summed(hs, layer, query, pooling)
    return model.readout.weight @ document + model.readout.bias, weights, own


OPTIONS = {
    "gru": {},
    "lstm": {"cell": "lstm"},
    "mean": {"attention": False},
    "max": {"attention": False, "pooling": "max"},
    "flat": {"levels": 1},
    "flat-max": {"attention": False, "pooling": "max", "levels": 1},
}
each_form = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@each_form
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.shapes
def test_the_formulas(options, shape):
    model, rows = han(**options), rows_of(shape)
    found = scores(model, documents_of(rows))
    expected = torch.stack([by_the_paper(model, row)[0] for row in rows])
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(found)
    parameters = dict(model.named_parameters())
    ours = torch.autograd.grad((found * direction).sum(), parameters.values())
    theirs = torch.autograd.grad((expected * direction).sum(), parameters.values())
    for name, one, other in zip(parameters, ours, theirs, strict=True):
        torch.testing.assert_close(one, other, msg=lambda said, name=name: f"{name}: {said}")


@each_form
def test_padding_and_company_change_nothing(options):
    model, rows = han(**options), rows_of([[3, 1, 9], [2], [30, 1]])
    whole = documents_of(rows)
    expected = scores(model, whole)
    for i, row in enumerate(rows):
        torch.testing.assert_close(scores(model, documents_of([row])), expected[i : i + 1])
    noise = torch.randint(0, WORDS, (len(whole.words.ids), 5))
    ids = torch.where(whole.words.real, whole.words.ids, torch.randint(0, WORDS, whole.words.ids.shape))
    wider = Documents(Tokens.of(torch.cat([ids, noise], 1), whole.words.lengths), whole.sentences)
    torch.testing.assert_close(scores(model, wider), expected)
    other = [2, 0, 1]
    torch.testing.assert_close(scores(model, documents_of([rows[i] for i in other])), expected[other])


@each_form
def test_a_document_without_words_is_no_accident(options):
    model, rows = han(**options), rows_of([[2, 3], [4]])
    expected = scores(model, documents_of(rows))
    found = scores(model, documents_of([rows[0], [], rows[1]]))
    torch.testing.assert_close(found[[0, 2]], expected)
    torch.testing.assert_close(found[1], model.readout.bias)
    none = scores(model, documents_of([[], []]))
    torch.testing.assert_close(none, model.readout.bias.expand(2, -1))
    (found.sum() + none.sum()).backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


def test_weights_are_those_of_the_paper():
    model, rows = han(), rows_of([[3, 1, 25], [2, 2]])
    documents = documents_of(rows)
    words, sentences = model.weigh_documents(documents)
    assert words.shape == documents.words.ids.shape
    assert sentences.shape == (2, 3)
    first = 0
    for i, row in enumerate(rows):
        _, of_words, of_sentences = by_the_paper(model, row)
        torch.testing.assert_close(sentences[i, : len(of_sentences)], torch.stack(of_sentences))
        for place, weights in enumerate(of_words, first):
            torch.testing.assert_close(words[place, : len(weights)], torch.stack(weights))
            assert not words[place, len(weights) :].any()
        first += len(of_words)
    assert not sentences[1, 2:].any()
    with pytest.raises(ArgumentError, match="attention = false"):
        han(attention=False).weigh_documents(documents)


def test_weights_of_one_level_are_those_of_the_formulas():
    """A word's weight in the document is its sentence's weight times the word's weight in its sentence."""
    model, rows = han(levels=1), rows_of([[3, 1, 25], [2, 2]])
    documents = documents_of(rows)
    words, sentences = model.weigh_documents(documents)
    torch.testing.assert_close(words.sum(1), torch.ones(5).double())
    torch.testing.assert_close(sentences.sum(1), torch.ones(2).double())
    first = 0
    for i, (row, count) in enumerate(zip(rows, (3, 2), strict=True)):
        own = words[first : first + count] * sentences[i, :count, None]
        real = documents.words.real[first : first + count]
        torch.testing.assert_close(own[real], torch.stack(by_the_paper(model, row)[1]))
        assert not own[~real].any()
        first += count
    found, shares = model.weigh_documents(documents_of([rows[0], []]))
    torch.testing.assert_close(found, words[:3])
    assert not shares[1].any()


def test_what_older_runs_have_written_is_read_as_before():
    """Their tables lack the keys added later."""
    for attention in (True, False):
        table = {"kind": "han", "dropout": 0.1, "cell": "gru", "size": 3, "embedding": 4, "hidden": 5}
        assert complete_table({**table, "attention": attention}) == {
            **table, "attention": attention, "pooling": "mean", "levels": 2
        }  # fmt: skip


def test_watching_changes_nothing_and_names_are_plain():
    model, documents = han(), documents_of(rows_of([[3, 1, 25], [2, 2]]))
    expected = scores(model, documents)
    with watch(model) as looks:
        torch.testing.assert_close(scores(model, documents), expected)
    assert list(looks) == ["words", "sentences"]
    assert looks["words"].weights.shape == (5, 1, 25)
    with watch(han(attention=False)) as looks:
        assert not list(looks)
    with watch(flat := han(levels=1)) as looks:
        scores(flat, documents)
    assert list(looks) == ["pooling"]


def test_rows_that_are_read_together_are_alike():
    """Every row occurs once, and the longest is at most twice the shortest, so that at most half is padding."""
    for lengths in ([3], [1, 1, 1], [5, 90, 1, 2, 44, 3, 0, 7], torch.randint(0, 200, (300,)).tolist()):
        groups = list(group_by_length(torch.tensor(lengths)))
        assert sorted(i for rows, _ in groups for i in rows.tolist()) == list(range(len(lengths)))
        for rows, longest in groups:
            own = [lengths[i] for i in rows.tolist()]
            assert max(1, *own, *own) == longest
            assert longest <= max(1, 2 * min(own))
    assert list(group_by_length(torch.zeros(0, dtype=torch.long))) == []


def test_dropout_falls_in_training_alone():
    model, documents = han(dropout=0.5), documents_of(rows_of([[9, 9], [9, 9, 9]]))
    torch.testing.assert_close(scores(model, documents), scores(model, documents))
    model.train()
    assert not torch.equal(scores(model, documents), scores(model, documents))


def test_annotations_begin_as_their_own_word():
    """A state depends more on its own word than on all earlier ones together."""
    model = build("han", read_model_config({"kind": "han", "preset": "tiny"}), WORDS, LABELS)
    x = torch.zeros(1, 5, 64)
    x[0, 2] = torch.randn(64)
    moved = model.word_states(x, torch.tensor([5]))[0].norm(dim=1)
    assert moved.argmax() == 2
    assert moved[2] > 2 * moved[[1, 3]].max()


def test_it_looks_at_the_word_that_decides():
    """The label depends on one word of one sentence."""
    torch.manual_seed(2)
    model = build(
        "han", read_model_config({"kind": "han", "size": 8, "embedding": 8, "hidden": 8, "dropout": 0.0}), 12, 2
    )

    def draw(count):
        rows, places = [], []
        labels = torch.randint(0, 2, (count,))
        for label in labels.tolist():
            row = rows_of([[5, 4, 6]])[0]
            row = [i if i == END else 5 + i % 6 for i in row]
            place = int(torch.randint(0, 5, ()))
            row[place] = 3 + label
            rows, places = [*rows, row], [*places, place]
        return documents_of(rows), labels, places

    def loss():
        documents, labels, _ = draw(32)
        return torch.nn.functional.cross_entropy(scores(model, documents), labels)

    fit(model, loss, 60, 0.02)
    documents, labels, places = draw(64)
    assert (scores(model, documents).argmax(-1) == labels).float().mean() == 1
    words, sentences = model.weigh_documents(documents)
    counted = words.view(64, 3, -1) * sentences[..., None]
    hits = torch.tensor([int(row.argmax()) == place for row, place in zip(counted, places, strict=True)]).float()
    # Seeing one of the two words is enough.
    assert max(hits[labels == label].mean() for label in (0, 1)) > 0.9
