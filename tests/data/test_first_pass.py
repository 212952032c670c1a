"""What is held out, and what a tokenizer is trained on."""

import pytest
from data.cases import sentences, texts

from regard.data import first_pass
from regard.data import rows as module
from regard.data.first_pass import hash_of
from regard.data.preparation import prepare
from regard.data.settings import TokenizerSettings
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train
from regard.errors import DataError


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
    monkeypatch.setattr(first_pass, "SAMPLE", 3000)
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
