"""Punctuation is a word of its own where words are drawn; links and trees count the words of the text."""

import pytest
import torch
from torch.testing import assert_close

from regard.data import END, START, train
from regard.inspection.collect.exhibit import Side
from regard.inspection.collect.sides import count_specials, merge, separate_marks, text_side


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
        # What stands between spaces is what it was.
        bare = "".join(parts.texts[1:-1])
        assert bare == "".join(whole.texts)
        assert by_word.shape[-1] == len(whole.texts)
