"""From rows to encoded pairs: what is held out, what trains a tokenizer, what is dropped and what is said of it."""

from collections import Counter

import pytest
from data.cases import sentences, texts

from regard.data import rows as module
from regard.data.preparation import prepare
from regard.data.rows import Reading, Rows, content, hash_of
from regard.data.settings import DataSettings, TokenizerSettings
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train
from regard.errors import DataError
from regard.io import LONGEST

TEXTS = ["a b c d", "d c b a"]


def test_repetitions_of_a_held_out_pair_are_not_trained_on(files):
    rows = sentences(400) * 3
    prepared = prepare(files(rows, held_out=0.2), say=print)
    held = set(prepared.valid_pairs)
    assert len(held) == len(prepared.valid) == 200  # at most half of those that differ, and each once
    assert not held & set(texts(prepared, prepared.train))
    assert len(prepared.train) == 600
    assert prepared.counts["repeated"] == 400


def test_what_is_held_out_does_not_hang_on_the_order(files):
    rows = sentences(500)
    first = prepare(files(rows, held_out=0.1))
    second = prepare(files(rows[::-1], held_out=0.1))
    assert set(first.valid_pairs) == set(second.valid_pairs)
    more = prepare(files([*rows, *sentences(20, seed=5)], held_out=0.1))
    assert len(set(first.valid_pairs) & set(more.valid_pairs)) >= 45


@pytest.mark.parametrize(
    ("share", "most", "expected"), [(0.01, 2000, 10), (0.5, 7, 7), (0.0001, 2000, 1), (0.5, 2000, 500)]
)
def test_how_many_are_held_out(files, share, most, expected):
    prepared = prepare(files(sentences(1000), held_out=share, held_out_most=most), TokenizerSettings(kind="character"))
    assert len(prepared.valid) == expected
    assert len(prepared.train) == 1000 - expected


def test_the_held_out_have_the_smallest_hashes(files):
    """Sorted all at once, which the survey never does."""
    rows = sentences(300)
    prepared = prepare(files(rows, held_out=0.1))
    assert set(prepared.valid_pairs) == set(sorted(rows, key=lambda row: hash_of(*row))[:30])
    assert hash_of("a  b", "c") == hash_of(" a b ", "c") != hash_of("a b c", "")
    assert hash_of("A", "b", lowercase=True) == hash_of("a", "B", lowercase=True)
    assert hash_of("one", "eins") == 0x724B9DD50D12CC5D  # the same on every machine


def test_the_smallest_corpora(files):
    prepared = prepare(files([("a", "b"), ("c", "d")]))
    assert (len(prepared.train), len(prepared.valid)) == (1, 1)
    with pytest.raises(
        DataError, match="one pair is too few to train on and to hold out for validation; give --valid-source"
    ):
        prepare(files([("a", "b")] * 5))
    assert len(prepare(files([("a", "b")] * 5, held_out=0.0)).train) == 5


def test_the_tokenizer_never_sees_what_is_held_out(files):
    """A word of a held-out pair alone is not in the vocabulary."""
    rows = [(f"w{i}", f"t{i}") for i in range(200)]
    prepared = prepare(files(rows, held_out=0.1), TokenizerSettings(kind="word"))
    assert len(prepared.valid) == 20
    assert prepared.tokenizers.source.size == 4 + 2 * 180


def test_a_large_corpus_is_sampled(files, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 3000)
    seen = {}
    monkeypatch.setattr(module, "train_both", lambda s, t, *a, **k: seen.update(s=s, t=t) or train_words(s, t))

    def train_words(sources, targets):
        return Tokenizers(train([*sources, *targets], "character"))

    rows = sentences(1000)
    prepare(files(rows))
    assert 1000 < sum(map(len, (*seen["s"], *seen["t"]))) <= 3000
    places = [rows.index(pair) for pair in zip(seen["s"], seen["t"], strict=True)]
    assert places == sorted(places)
    assert max(places) > 900


@pytest.fixture(scope="module")
def tokenizers():
    return Tokenizers(train(TEXTS, "word"))


def reading(**data):
    return Reading(DataSettings(source=("a",), target=("b",), **data), TokenizerSettings(kind="word"))


def test_rows_that_are_blank_or_long_are_counted(tokenizers):
    counts = Counter()
    rows = [("a b", "b a"), ("", "a"), ("a", ""), ("a b c", "a"), ("a", "d c b"), ("c", "d")]
    made = reading(longest=2).encode(rows, None, tokenizers, counts)
    assert made.texts == [("a b", "b a"), ("c", "d")]
    assert [tokenizers.source.decode(ids) for ids in made.sources] == ["a b", "c"]
    assert [tokenizers.target.decode(ids) for ids in made.targets] == ["b a", "d"]
    assert counts == {"blank": 2, "long": 2}


def test_a_line_that_was_cut_is_no_pair(tokenizers):
    counts = Counter()
    assert reading().encode([("x" * LONGEST, "a")], None, tokenizers, counts).texts == []
    assert counts["long"] == 1


def test_a_tag_stands_before_the_source():
    tokenizers = Tokenizers(train([*TEXTS, "<to-b> a"], "word", tags=["<to-b>"]))
    made = reading().encode([("a", "b")], "<to-b>", tokenizers, Counter())
    assert made.texts == [("<to-b> a", "b")]
    assert len(made.sources[0]) == 2


def test_only_keeps_all_parts_together():
    rows = Rows([("a", "b"), ("c", "d"), ("e", "f")], [[1], [2], [3]], [[4], [5], [6]], [[], [(0, 0)], []])
    assert rows.only([False, True, False]) == Rows([("c", "d")], [[2]], [[5]], [[(0, 0)]])
    assert rows.only([True] * 3) == rows


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ({"pairs": 1200, "valid": 0}, "1,200 pairs; none for validation"),
        (
            {"pairs": 5, "valid": 2, "blank": 1, "long": 3, "repeated": 0},
            "5 pairs; dropped 1 blank, 3 longer than 2 tokens; 2 held out for validation (by hash; give "
            "--valid-source and --valid-target to choose them)",
        ),
    ],
)
def test_the_summary_counts_what_was_dropped(counts, line):
    assert reading(longest=2).summary(counts, {}) == line


def test_a_file_is_known_by_its_bytes(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a\n")
    other.write_text("a\n")
    assert content(str(one)) == content(str(other))
    other.write_text("b\n")
    assert content(str(one)) != content(str(other))
    with pytest.raises(DataError, match="missing"):
        content(str(tmp_path / "missing"))
