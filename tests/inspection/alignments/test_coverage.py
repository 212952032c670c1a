"""Source words that an output leaves out: rows of three, by the attention that they received."""

import random
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inspection.planted import TOKENIZERS, Planted, pairs

from regard.data import Tokenizers, train
from regard.errors import ArgumentError
from regard.inspection.alignments.coverage import content_rows, sum_received, untranslated_spans, word_attention
from regard.inspection.alignments.extraction import watch_batches, word_weights
from regard.inspection.alignments.settings import AlignmentSettings
from regard.run import load

VIEW = "layers.0.cross"
STORED = "tests/stored_runs"


@given(st.lists(st.tuples(st.sampled_from(["an", "ox.", ",", "—", "<2de>"]), st.sampled_from([0.0, 0.19, 0.2, 1.0]))))
def test_rows_of_three_words_as_a_person_would_find_them(row):
    """A letter for each word: low, enough, or nothing, as marks are; rows are found as text is searched."""
    words, received = [word for word, _ in row], [value for _, value in row]
    letters = "".join(
        " " if not re.search(r"\w", word) or word == "<2de>" else "xo"[value >= 0.2] for word, value in row
    )
    expected = tuple(match.span() for match in re.finditer(r"x *x *x(?: *x)*", letters))
    assert untranslated_spans(words, received, ["<2de>"]) == expected


def test_a_text_that_is_spelled_has_no_words():
    assert untranslated_spans(list("through"), [1, 1, 1, 1, 0, 0, 0]) == ()
    assert untranslated_spans(list("12345"), [0] * 5) == ()
    assert untranslated_spans(["I", "saw", "a", "b", "c"], [1, 1, 0, 0, 0]) == ((2, 5),)


def test_of_an_output_without_words_everything_is_left_out():
    assert untranslated_spans(["we", "were", "here", "."], []) == ((0, 3),)
    assert untranslated_spans(["were", "here", "."], []) == ()
    assert untranslated_spans([], []) == ()


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("head", [None, 1])
def test_what_a_word_receives_is_summed_over_the_output(head, offset):
    """Against a loop over pieces; the weights are those that links are read from."""
    model, found = Planted((None, 0, 1)).eval(), pairs([5, 1, 8], random.Random(torch.initial_seed()))[0]
    settings = AlignmentSettings(VIEW, head, offset)
    attention = word_attention(model, TOKENIZERS, found, settings)
    for one, two in zip(attention, word_weights(model, TOKENIZERS, found, settings), strict=True):
        torch.testing.assert_close(one.weights, two)
    (part,) = watch_batches(model, TOKENIZERS, found)
    for number, weights in zip(part.pairs, part.weights(VIEW), strict=True):
        source, target = found[number]
        heads = weights if head is None else weights[head : head + 1]
        rows = range(offset, len(target) + offset)
        each_head = [[sum(float(one[row, word]) for row in rows) for one in heads] for word in range(len(source))]
        middle = [sorted(each)[len(each) // 2] for each in each_head]  # of one head, or of three
        torch.testing.assert_close(attention[number].received, torch.tensor(middle))


def test_marks_of_the_output_and_what_nobody_wrote_give_nothing():
    tokenizer = train(["a b , . c"], "word")
    ids = tokenizer.encode("a , c .")
    assert content_rows(tokenizer, ids, 6, 0) == [True, False, True, False, False, False]
    assert content_rows(tokenizer, ids, 6, 1) == [False, True, False, True, False, False]
    weights = torch.full((1, 2, 3, 2), torch.nan)
    weights[0, :, 1] = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    rows, columns = torch.tensor([[False, True, False]]), torch.tensor([[1, -1]])
    assert sum_received(weights, rows, columns, 2).tolist() == [[0.0, 0.375]]


@pytest.mark.parametrize("kind", ["transformer", "rnnsearch", "luong", "pointer"])
def test_every_kind_with_attention_names_what_a_short_output_leaves_out(kind):
    """One token gives one in all, so that at most five of twenty words have a fifth, and three in a row have not."""
    run = load(f"{STORED}/{kind}")
    text = " ".join(["we were here and the dog sleeps"] * 3)
    (output,) = next(run.stream([text], coverage=True, longest=1))
    assert output.untranslated
    assert all(0 <= start <= end - 3 <= len(text.split()) - 3 for start, end in output.untranslated)
    (with_links,) = next(run.stream([text], coverage=True, alignment=True, longest=1))
    assert with_links.untranslated == output.untranslated
    assert with_links.alignment is not None
    assert next(run.stream([text], longest=1))[0].untranslated is None
    assert next(run.stream(["  "], coverage=True))[0].untranslated == ()


def test_a_kind_without_attention_to_its_source_is_refused():
    run = load(f"{STORED}/rnn")
    with pytest.raises(ArgumentError, match="a model of kind rnn has no attention to its source"):
        run.stream(["we were here ."], coverage=True)


def test_a_tag_is_no_word_of_a_row():
    tokenizer = train(["ab cd ef gh"], "word", tags=["<2de>"])
    assert untranslated_spans(["<2de>", "ab", "cd", "ef"], [0, 0, 0, 0], [*tokenizer.tags.values()]) == ((1, 4),)
    assert untranslated_spans(["<2de>", "ab", "cd"], [0, 0, 0], [*Tokenizers(tokenizer).source.tags.values()]) == ()
