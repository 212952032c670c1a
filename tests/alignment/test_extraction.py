"""Alignments extracted in batches against merging one by one: padding, offsets, thresholds, joined directions."""

import json
import random
import re

import pytest
import torch
from alignment.planted import TOKENIZERS, Planted, largest, pairs
from hypothesis import given
from hypothesis import strategies as st

from regard.alignment.extraction import ALIGNMENT_FILE as FILE
from regard.alignment.extraction import (
    AlignmentSettings,
    balance_weights,
    content_rows,
    extract_links,
    link_words,
    merge_batch,
    pick_links,
    sum_received,
    untranslated_spans,
    watch_batches,
    word_attention,
)
from regard.alignment.symmetrisation import symmetrise
from regard.data import Tokenizers, train
from regard.errors import ArgumentError, DataError
from regard.inspection.collect.exhibit import merge
from regard.run import load

WORDS = st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=6)
VIEW = "layers.0.cross"
STORED = "tests/stored_runs"


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4), st.integers(1, 3))
def test_a_batch_is_merged_as_each_alone(sentences, heads):
    n, m = (max(len(pair[side]) for pair in sentences) for side in (0, 1))
    weights = torch.rand(len(sentences), heads, n, m + 1, dtype=torch.float64)  # one column more, as in pointer models
    rows, columns = (
        torch.tensor([[-1 if word is None else word for word in each] + [-1] * (size - len(each)) for each in side])
        for side, size in zip(zip(*sentences, strict=True), (n, m), strict=True)
    )
    for b, (one, two) in enumerate(sentences):  # fill the discarded entries with arbitrary values
        weights[b, :, len(one) :] = torch.nan
        weights[b, :, :, len(two) :] = torch.inf
    found = merge_batch(weights, rows, columns, (int(rows.max()) + 1, int(columns.max()) + 1))
    for each, (one, two), pieces in zip(found, sentences, weights, strict=True):
        alone = merge(pieces[:, : len(one), : len(two)], one, two)
        torch.testing.assert_close(each[:, : alone.shape[1], : alone.shape[2]], alone)
        assert not each[:, alone.shape[1] :].any()
        assert not each[:, :, alone.shape[2] :].any()


@given(st.integers(1, 5), st.integers(1, 5))
def test_the_largest_weights_are_the_links_of_words(i, j):
    weights = torch.rand(i, j).round(decimals=1)
    assert extract_links(weights[None], AlignmentSettings(VIEW))[0] == largest(weights)


def test_weights_that_are_none():
    weights = torch.tensor([[0.0, 0.0], [torch.nan, 0.5], [0.5, 0.5]])
    assert pick_links(weights).tolist() == [[False, False], [False, False], [True, False]]
    assert pick_links(weights, 0.5).tolist() == [[False, False], [False, False], [True, True]]
    assert extract_links(torch.zeros(2, 0, 3), AlignmentSettings(VIEW)) == [[], []]


def test_thresholds_and_joined_directions():
    """Target word 0 looks at two words, and no target word looks at source word 1 more than target word 1 does."""
    weights = torch.tensor([[[0.5, 0.1, 0.4], [0.8, 0.2, 0.0]]])
    assert extract_links(weights, AlignmentSettings(VIEW)) == [[(0, 0), (0, 1)]]
    assert extract_links(weights, AlignmentSettings(VIEW, threshold=0.4)) == [[(0, 0), (2, 0), (0, 1)]]
    assert extract_links(weights, AlignmentSettings(VIEW, threshold=0.9)) == [[]]
    assert extract_links(weights, AlignmentSettings(VIEW, join="union")) == [[(0, 0), (2, 0), (0, 1), (1, 1)]]
    assert extract_links(weights, AlignmentSettings(VIEW, join="intersection")) == [[(0, 1)]]
    grown = symmetrise([(0, 0), (0, 1)], [(0, 1), (1, 1), (2, 0)], "grow-diag")
    assert extract_links(weights, AlignmentSettings(VIEW, join="grow-diag")) == [grown]


def test_balanced_weights_give_a_word_its_own():
    """Check balancing against numbers worked by hand: an article looks at its noun; the columns sum to 0.2 and 1.8."""
    weights = torch.tensor([[0.2, 0.8], [0.0, 1.0]])
    assert largest(weights) == [(1, 0), (1, 1)]
    once = balance_weights(weights, 1)
    torch.testing.assert_close(once, torch.tensor([[1 / (1 + 4 / 9), (4 / 9) / (1 + 4 / 9)], [0.0, 1.0]]))
    assert extract_links(weights[None], AlignmentSettings(VIEW, balance=1)) == [[(0, 0), (1, 1)]]
    assert balance_weights(weights, 0) is weights


@given(st.integers(2, 5))
def test_balancing_ends_where_both_sides_have_one_each(size):
    found = balance_weights(torch.rand(size, size, dtype=torch.float64) + 0.1, 200)
    torch.testing.assert_close(found.sum(0), torch.ones(size, dtype=torch.float64))
    torch.testing.assert_close(found.sum(1), torch.ones(size, dtype=torch.float64))
    padded = torch.zeros(size + 1, size + 2)
    padded[:size, :size] = found
    assert torch.equal(balance_weights(padded, 3)[size:], padded[size:])  # padding stays zero, without NaN


@pytest.mark.parametrize("offset", [0, 1])
def test_the_row_of_the_word_read_is_the_next(offset):
    found, gold = pairs([5, 1, 8], random.Random(torch.initial_seed()))
    model = Planted((1 - offset, offset))
    right = [sorted(links, key=lambda link: link[1]) for links in gold]
    assert link_words(model, TOKENIZERS, found, AlignmentSettings(VIEW, 1, offset)) == right
    assert link_words(model, TOKENIZERS, found[1:2], AlignmentSettings(VIEW, 1, offset)) == right[1:2]
    attention = word_attention(model, TOKENIZERS, found, AlignmentSettings(VIEW, 1, offset))
    assert [tuple(each.weights.shape) for each in attention] == [(5, 5), (1, 1), (8, 8)]
    assert [largest(each.weights) for each in attention] == right


def test_batches_do_not_matter():
    found, _ = pairs([1, 2, 3, 12, 7, 7], random.Random(torch.initial_seed()))
    model = Planted((0, None))
    seen = sorted(number for part in watch_batches(model, TOKENIZERS, found, budget=8) for number in part.pairs)
    assert seen == list(range(6))
    assert max(len(part.pairs) for part in watch_batches(model, TOKENIZERS, found, budget=8)) < 6


def test_a_head_that_is_not_there():
    found, _ = pairs([2], random.Random(0))
    with pytest.raises(ArgumentError, match="head 3: layer 1 has 2 heads, numbered 1 to 2"):
        link_words(Planted((0, None)), TOKENIZERS, found, AlignmentSettings(VIEW, 2))


@given(st.lists(st.tuples(st.sampled_from(["an", "ox.", ",", "—", "<2de>"]), st.sampled_from([0.0, 0.19, 0.2, 1.0]))))
def test_rows_of_three_words_as_a_person_would_find_them(row):
    """Write low words as x, others as o and marks as spaces, and find the runs with a regular expression."""
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
    """Compare the weight that each source word receives over the output with a loop over pieces."""
    model, found = Planted((None, 0, 1)).eval(), pairs([5, 1, 8], random.Random(torch.initial_seed()))[0]
    settings = AlignmentSettings(VIEW, head, offset)
    attention = word_attention(model, TOKENIZERS, found, settings)
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
    """One output token gives a total of one: at most five of twenty words receive a fifth, so three in a row do not."""
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


def test_written_and_read(tmp_path):
    for chosen in (
        AlignmentSettings("layers.0.cross", 1, 1, 0.25, "gold links of 8 pairs", 0.3, "union", 5),
        AlignmentSettings("layers.0.cross"),
    ):
        assert chosen.write(tmp_path) == tmp_path / FILE
        assert AlignmentSettings.read(tmp_path / FILE) == chosen == AlignmentSettings.of(tmp_path, Planted((0, 0)))
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    (tmp_path / FILE).write_text('{"view": "layers.0.cross", "head": null, "offset": 0, "more": 1}')
    assert AlignmentSettings.read(tmp_path / FILE) == AlignmentSettings("layers.0.cross")


@pytest.mark.parametrize(("layers", "usual"), [(1, 0), (2, 1), (3, 2), (4, 2), (6, 4)])
def test_the_usual_layer(tmp_path, layers, usual):
    assert AlignmentSettings.of(tmp_path, Planted(*[(0,)] * layers)) == AlignmentSettings(f"layers.{usual}.cross")


@pytest.mark.parametrize(
    ("training", "view", "head"),
    [
        ("guided = 0.1", "layers.2.cross", 0),
        ("guided = 0.1\nguided_layer = 0\nguided_head = 3", "layers.0.cross", 3),
        ("guided = 0.0\nguided_layer = 0", "layers.2.cross", None),
    ],
)
def test_what_was_guided_is_read(tmp_path, training, view, head):
    (tmp_path / "config.toml").write_text(f"[training]\n{training}\n")
    chosen = AlignmentSettings.of(tmp_path, Planted(*[(0,) * 4] * 4))
    assert (chosen.view, chosen.head, chosen.offset) == (view, head, 0)
    assert (chosen.by, chosen.threshold) == (("", None) if head is None else ("guided in training", 0.2))


def test_no_attention(tmp_path):
    with pytest.raises(ArgumentError, match="the model has no attention to its source"):
        AlignmentSettings.of(tmp_path, Planted())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "no view in it, expected the name of an attention"),
        ('{"head": 0}', "no view in it"),
        ('{"view": "layers.7.cross"}', 'view "layers.7.cross", expected one of layers.0.cross, layers.1.cross'),
        ({"head": -1}, "head -1, expected a head from 0, or null: the mean"),
        ({"head": True}, "head true, expected"),
        ({"offset": 2}, "offset 2, expected 0 or 1"),
        ({"offset": None}, "offset null, expected 0 or 1"),
        ({"threshold": 0}, "threshold 0, expected a share up to 1, or null"),
        ({"join": "grow"}, 'join "grow", expected intersection, union, grow-diag or null'),
        ({"balance": 1.5}, "balance 1.5, expected a number of rounds"),
        ({"aer": "low"}, 'aer "low", expected a number or null'),
    ],
)
def test_a_file_that_is_wrong(tmp_path, content, message):
    text = content if isinstance(content, str) else json.dumps({"view": "layers.0.cross", **content})
    (tmp_path / FILE).write_text(text)
    with pytest.raises(DataError) as caught:
        AlignmentSettings.of(tmp_path, Planted((0,), (0,)))
    assert str(caught.value).startswith(f"{tmp_path / FILE}: {message}")


@pytest.mark.parametrize(
    ("view", "head", "words"),
    [
        ("decoder.blocks.0.cross", 2, "layer 1, head 3, of"),
        ("decoder.stack.blocks.11.cross", None, "layer 12, mean of the heads, of"),
        ("layers.1.cross", 0, "layer 2, head 1, of"),
        ("attention", 0, "the attention to the source, head 1, of"),
        ("upper.cross", 0, "upper.cross, head 1, of"),  # of a plugin, which may have several heads without a number
    ],
)
def test_people_read_layers_and_heads_from_1(view, head, words):
    assert str(AlignmentSettings(view, head)).startswith(words)
