"""Views of an exhibit by name or title; sides as drawn; pieces merged to words, against a plain loop."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inspection.subjects import CLASSIFIERS, REVIEWS, subject, tokenizers
from torch.testing import assert_close

from regard.attention import Attention, Dot, GridAttention, GridSelfAttention
from regard.data import END, START, train
from regard.errors import ArgumentError, ShapeError
from regard.inspection import exhibit_of
from regard.inspection.collect.exhibit import (
    View,
    as_exhibit,
    count_specials,
    exhibit_of_look,
    find_view,
    merge,
    separate_marks,
)
from regard.tasks import Side
from regard.tasks.forcing import document_sides, text_side


def view(name, role, title=""):
    return View(name, title or name, role, 0, "written", "source", torch.ones(1, 1, 1))


VIEWS = [view("a", "encoder"), view("b", "cross", "Decoder, layer 1"), view("c", "cross"), view("d", "decoder")]


def test_a_view_is_found_by_its_name_or_its_title():
    assert find_view(VIEWS, "a") is VIEWS[0]
    assert find_view(VIEWS, "decoder, LAYER 1") is VIEWS[1]
    # The default is the last view of the source or of a memory.
    assert find_view(VIEWS, None) is VIEWS[2]
    assert find_view([*VIEWS, view("e", "memory")], None).name == "e"
    assert find_view([VIEWS[0], VIEWS[3]], None) is VIEWS[0]
    with pytest.raises(ArgumentError, match="view: 'A' given, expected one of: Decoder, layer 1; c; d"):
        find_view(VIEWS[1:], "A")


def look(n=2, m=3, batch=(1,)):
    return Attention(Dot()).look(torch.randn(*batch, n, 4), torch.randn(*batch, m, 4), torch.randn(*batch, m, 4))


def test_words_name_rows_and_columns():
    seen = look()
    exhibit = exhibit_of_look(seen, ["a", "b", "c"], ["x", "y"])
    (view,) = exhibit.views
    assert (view.role, view.rows, view.columns) == ("cross", "written", "source")
    torch.testing.assert_close(view.weights, seen.weights)
    assert exhibit.sides["source"].texts == ("a", "b", "c")
    assert (exhibit.title, exhibit.output) == ("a b c", "x y")


def test_without_words_positions_are_counted():
    sides = exhibit_of_look(look()).sides
    assert sides["source"].texts == ("1", "2", "3")
    assert sides["written"].texts == ("1", "2")


def test_a_square_look_with_one_text_is_at_itself():
    exhibit = exhibit_of_look(look(3, 3), ["a", "b", "c"])
    assert exhibit.views[0].rows == exhibit.views[0].columns == "source"
    assert exhibit.views[0].role == "encoder"
    assert list(exhibit.sides) == ["source"]


def test_an_exhibit_is_taken_as_it_is():
    exhibit = exhibit_of_look(look())
    assert as_exhibit(exhibit, None, None) is exhibit
    with pytest.raises(ArgumentError, match="given with an exhibit, which has its own words"):
        as_exhibit(exhibit, ["a"], None)
    with pytest.raises(ArgumentError, match="str given, expected an Exhibit or a Look"):
        as_exhibit("look", None, None)


@pytest.mark.parametrize(
    ("make", "words", "error", "message"),
    [
        (lambda: look(batch=(2, 1)), None, ShapeError, r"got weights of \[2, 1, 2, 3\]"),
        (look, ["a"], ShapeError, "source: 3 words were expected, one for each source position, got 1"),
        (look, "abc", ArgumentError, "source: a sequence of words was expected, got one string"),
    ],
)
def test_what_cannot_be_shown_is_refused(make, words, error, message):
    with pytest.raises(error, match=message):
        exhibit_of_look(make(), words)


def test_places_of_a_grid_are_the_columns():
    seen = GridAttention(Attention(Dot())).look(torch.randn(1, 2, 4), torch.randn(1, 4, 3, 5))
    exhibit = exhibit_of_look(seen)
    assert exhibit.sides["places"].grid == (3, 5)
    torch.testing.assert_close(exhibit.views[0].weights, seen.weights.flatten(-2))
    own = exhibit_of_look(GridSelfAttention(8).look(torch.randn(1, 8, 3, 5)))
    assert own.views[0].role == "places"
    assert own.views[0].weights.shape == (1, 15, 15)


WORDS = st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=9)
IN_ORDER = st.lists(st.integers(1, 3), min_size=1, max_size=5).map(
    lambda sizes: [word for word, size in enumerate(sizes) for _ in range(size)]
)


def loop(weights, rows, columns):
    """Merge pieces to words by the definition, in plain numbers."""
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
    for head in (0, 1):  # heads are independent
        torch.testing.assert_close(merged[head, 2], merge(weights[head, 2], rows, columns))


@given(IN_ORDER, IN_ORDER)
def test_what_is_dropped_is_dropped(rows, columns):
    weights = torch.rand(len(rows) + 1, len(columns) + 2, dtype=torch.float64)
    weights[-1], weights[:, 0] = math.nan, math.inf  # END and a tag: their weights do not matter
    merged = merge(weights, [*rows, None], [None, *columns, None])
    torch.testing.assert_close(merged, merge(weights[:-1, 1:-1], rows, columns))


def test_nothing_but_special_pieces():
    assert merge(torch.rand(2, 3), [None, None], [None] * 3).shape == (0, 0)
    assert merge(torch.rand(5, 2, 3), [None, 1], [None] * 3).shape == (5, 2, 0)


def test_merging_has_a_gradient():
    weights = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: merge(w, [0, 0, None], [1, None, 0, 1]), weights)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_merging_keeps_the_dtype(dtype):
    merged = merge(torch.ones(2, 2, dtype=dtype), [0, 0], [0, 0])
    assert merged.dtype == dtype
    assert merged.item() == 2.0


@pytest.mark.unchecked
def test_what_does_not_fit_is_named():
    for rows, columns, shape in (([0, 1, 2], [0, 1, 2], (2, 3)), ([0, 1], [], (2, 3)), ([0], [0, 1, 2], (3,))):
        with pytest.raises(ShapeError, match=f"weights: {len(rows)} rows and {len(columns)} columns of pieces given"):
            merge(torch.rand(shape), rows, columns)


# ---- words outside the vocabulary

STRANGE = ("xylophonic", "Quetzal-", "ZZZ9", "日本")


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("seed", range(3))
def test_documents_show_unknown_words_as_they_were_typed(name, seed):
    """Strange words at random positions are shown as typed and marked, and no other word is."""
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
    # A truncated row ends before the typed text does; a different text does not match the row.
    more = document_sides(tokenizer, row, [f"{first} xylophonic", "and more"], ends=False)["source"]
    assert more.texts == (first, "xylophonic")
    for other in (["another xylophonic"], [first], []):
        side = document_sides(tokenizer, row, other, ends=False)["source"]
        assert side.texts == (first, "<unk>")
        assert side.unknown == (1,)


def side(text, pieces, words, unknown=()):
    return Side(tuple(pieces.split()), tuple(words), tuple(text.split()), unknown=unknown)


@pytest.mark.parametrize(
    ("text", "pieces", "words", "texts"),
    [
        ("not bad.", "▁not ▁b ad .", [0, 1, 1, 1], ["not", "bad", "."]),
        ("(so) it", "▁( so ) ▁it", [0, 0, 0, 1], ["(", "so", ")", "it"]),
        ("“Why?!”", "▁ “ Why ? !”", [0, 0, 0, 0, 0], ["“", "Why", "?!”"]),
        ("don't well-known 3.5", "▁don ' t ▁well - known ▁3 . 5", [0, 0, 0, 1, 1, 1, 2, 2, 2], None),
        ("... ?", "▁. . . ▁?", [0, 0, 0, 1], None),
        ("bad.", "bad ##.", [0, 0], ["bad", "."]),
        ("bad.", "Ġbad .", [0, 0], ["bad", "."]),
        ("bad.", "bad@@ .", [0, 0], ["bad", "."]),
        ("bad. </s>", "▁bad. </s>", [0, None], ["bad."]),
        ("猫。", "▁猫 。", [0, 0], ["猫", "。"]),
    ],
)
def test_where_a_word_begins_and_ends(text, pieces, words, texts):
    given = side(text, pieces, words)
    parts = separate_marks(given)
    assert list(parts.texts) == (list(given.texts) if texts is None else texts)
    assert (parts.words == given.words) == (texts is None or len(texts) == len(set(words) - {None}))
    assert parts.pieces == given.pieces
    assert [word is None for word in parts.words] == [word is None for word in words]


def test_an_unknown_piece_is_that_of_the_letters():
    parts = separate_marks(side("Ångström, yes", "▁ <unk> ngström , ▁yes", [0, 0, 0, 0, 1], unknown=(0,)))
    assert parts.texts == ("Ångström", ",", "yes")
    assert parts.unknown == (0,)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "character", "word"])
def test_nothing_is_lost_of_any_tokenizer(kind):
    texts = ["The soup is not bad.", "“Really?” she asked; it's (very) good!", "Yes ... and no."]
    tokenizer = train(texts * 5, kind)
    for text in texts:
        ids = tokenizer.encode(text)
        whole = text_side(tokenizer, ids, text, start=True, end=True)
        parts = count_specials(separate_marks(whole))
        assert None not in parts.words
        assert (parts.texts[0], parts.texts[-1]) == tuple(tokenizer.pieces([START, END]))
        weights = torch.rand(3, len(whole.pieces))
        by_word, by_part = merge(weights, range(3), whole.words), merge(weights, range(3), parts.words)
        assert_close(by_part.sum(-1), weights.sum(-1))
        if kind in ("bpe", "character"):
            assert set(parts.texts) >= {"."} or "." not in text
        # The characters between spaces are unchanged.
        bare = "".join(parts.texts[1:-1])
        assert bare == "".join(whole.texts)
        assert by_word.shape[-1] == len(whole.texts)
