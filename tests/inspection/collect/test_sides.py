"""Merging pieces to words: against a plain loop, and what must hold of any merging."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inspection.subjects import CLASSIFIERS, REVIEWS, subject, tokenizers

from regard.data import END
from regard.errors import ArgumentError, ShapeError
from regard.inspection import exhibit_of
from regard.inspection.collect.sides import document_sides, merge

WORDS = st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=9)
IN_ORDER = st.lists(st.integers(1, 3), min_size=1, max_size=5).map(
    lambda sizes: [word for word, size in enumerate(sizes) for _ in range(size)]
)


def loop(weights, rows, columns):
    """The definition, in plain numbers."""
    count = [max((word for word in words if word is not None), default=-1) + 1 for words in (rows, columns)]
    out = [[0.0] * count[1] for _ in range(count[0])]
    for i in range(count[0]):
        pieces = [n for n, word in enumerate(rows) if word == i]
        for j in range(count[1]):
            for n in pieces:
                for m, word in enumerate(columns):
                    if word == j:
                        out[i][j] += float(weights[n][m]) / len(pieces)
    return torch.tensor(out, dtype=torch.float64).reshape(count)


@given(WORDS, WORDS)
def test_merge_is_the_loop(rows, columns):
    weights = torch.rand(len(rows), len(columns), dtype=torch.float64)
    torch.testing.assert_close(merge(weights, rows, columns), loop(weights, rows, columns))


@given(IN_ORDER, IN_ORDER)
def test_rows_still_sum_to_one(rows, columns):
    weights = torch.randn(2, 3, len(rows), len(columns), dtype=torch.float64).softmax(-1)
    merged = merge(weights, rows, columns)
    assert merged.shape == (2, 3, rows[-1] + 1, columns[-1] + 1)
    torch.testing.assert_close(merged.sum(-1), torch.ones(merged.shape[:-1], dtype=torch.float64))
    for head in (0, 1):  # heads do not know of each other
        torch.testing.assert_close(merged[head, 2], merge(weights[head, 2], rows, columns))


def test_whole_words_stay_as_they_are():
    weights = torch.rand(4, 7)
    assert torch.equal(merge(weights, range(4), range(7)), weights)


@given(IN_ORDER, IN_ORDER)
def test_what_is_dropped_is_dropped(rows, columns):
    weights = torch.rand(len(rows) + 1, len(columns) + 2, dtype=torch.float64)
    weights[-1], weights[:, 0] = math.nan, math.inf  # END and a tag: whatever is in them
    merged = merge(weights, [*rows, None], [None, *columns, None])
    torch.testing.assert_close(merged, merge(weights[:-1, 1:-1], rows, columns))


def test_renormalised_rows_sum_to_one_or_to_nothing():
    weights = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
    assert merge(weights, [0, 1], [None, 0, 1]).tolist() == [[0.25, 0.25], [0.0, 0.0]]
    assert merge(weights, [0, 1], [None, 0, 1], renormalise=True).tolist() == [[0.5, 0.5], [0.0, 0.0]]


def test_nothing_but_special_pieces():
    assert merge(torch.rand(2, 3), [None, None], [None] * 3).shape == (0, 0)
    assert merge(torch.rand(5, 2, 3), [None, 1], [None] * 3).shape == (5, 2, 0)


def test_merging_has_a_gradient():
    weights = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: merge(w, [0, 0, None], [1, None, 0, 1], renormalise=True), weights)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_merging_keeps_the_dtype(dtype):
    merged = merge(torch.ones(2, 2, dtype=dtype), [0, 0], [0, 0])
    assert merged.dtype == dtype
    assert merged.item() == 2.0


@pytest.mark.unchecked
def test_what_does_not_fit_is_named():
    with pytest.raises(ShapeError, match="rows: 2 were expected, one for each piece, got 3"):
        merge(torch.rand(2, 3), [0, 1, 2], [0, 1, 2])
    with pytest.raises(ShapeError, match="columns: 3 were expected"):
        merge(torch.rand(2, 3), [0, 1], [])
    with pytest.raises(ArgumentError, match="rows: words are counted from 0, got -1"):
        merge(torch.rand(2, 3), [0, -1], [0, 1, 2])
    with pytest.raises(ShapeError, match="weights: "):
        merge(torch.rand(3), [0], [0, 1, 2])


# ---- words that the vocabulary has not

STRANGE = ("xylophonic", "Quetzal-", "ZZZ9", "日本")


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("seed", range(3))
def test_documents_show_unknown_words_as_they_were_typed(name, seed):
    """Strange words at places drawn anew: shown as typed, marked, and nothing else is."""
    draw = random.Random(f"{name} {seed}")
    words = draw.choice(REVIEWS).source.split()
    places = sorted(draw.sample(range(len(words)), min(3, len(words))))
    for place in places:
        words[place] = draw.choice(STRANGE)
    text = " ".join(words)
    run = subject(name, "word")
    vocabulary, side = run.tokenizers.source, exhibit_of(run, text).sides["source"]
    typed = vocabulary.normalise(text).split()
    assert list(side.texts) == typed
    assert "<unk>" not in side.texts
    known = {word for word in typed if vocabulary.decode(vocabulary.encode(word)) == word}
    assert [typed[place] for place in side.unknown] == [word for word in typed if word not in known]
    assert {side.pieces[piece] for piece, word in enumerate(side.words) if word in side.unknown} <= {"<unk>"}
    sentences = exhibit_of(run, text).sides["sentences"].texts
    assert " ".join(sentences).split() == typed


def test_words_that_do_not_agree_stay_as_they_were_read():
    tokenizer = tokenizers("word").source
    row = [*tokenizer.encode("the xylophonic"), END]
    first = tokenizer.decode(row[:1])
    assert document_sides(tokenizer, row, [f"{first} xylophonic"], ends=False)["source"].texts == (first, "xylophonic")
    # A text that was cut ends before what was typed; another text is not that of the row.
    more = document_sides(tokenizer, row, [f"{first} xylophonic", "and more"], ends=False)["source"]
    assert more.texts == (first, "xylophonic")
    for other in (["another xylophonic"], [first], []):
        side = document_sides(tokenizer, row, other, ends=False)["source"]
        assert side.texts == (first, "<unk>")
        assert side.unknown == (1,)
