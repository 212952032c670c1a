"""BPE dropout: plain BPE at 0, characters at 1, the paper's distribution between, and the text always preserved."""

import itertools
import json
from collections import Counter
from fractions import Fraction

import pytest
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models

from regard.data.bpe_dropout import BpeDropout
from regard.data.tokenizer import Tokenizer, Tokenizers
from regard.data.vocabulary import train
from regard.errors import ArgumentError

TEXTS = ["unrelated relations unite", "Ein Mann in grün hält 12 Gitarren, <s> x", "lower newest widest low new"] * 20
BOTH = Tokenizers(train(TEXTS, size=400, tags=["<2de>"]))
TEXT = st.text() | st.lists(
    st.sampled_from(["unrelated ", "related", "low", " new", "grün", "<2de> ", "12", "😀"])
).map("".join)


def cut(text, probability, seed=0, epoch=0, index=0):
    ids = BOTH.source.encode(text)
    return BpeDropout(BOTH, probability, seed=seed).pair(ids, ids, epoch=epoch, index=index)


@settings(max_examples=100)
@given(TEXT)
def test_without_dropout_it_is_plain_bpe(text):
    """Compare with the library itself."""
    ids = BOTH.source.encode(text)
    assert cut(text, 0.0) == (ids, ids)


@settings(max_examples=100)
@given(TEXT, st.floats(0, 1), st.integers(0, 2**40))
def test_every_cut_is_of_the_same_text(text, probability, seed):
    first, second = cut(text, probability, seed)
    assert BOTH.source.decode(first) == BOTH.source.decode(second) == BOTH.source.decode(BOTH.source.encode(text))
    assert (first, second) == cut(text, probability, seed)


def test_at_one_it_is_characters():
    ids, _ = cut("unrelated grün 😀 <2de> 12", 1.0)
    pieces = BOTH.source.pieces(ids)
    assert [piece for piece in pieces if not piece.startswith("<")] == list("▁unrelated▁grün▁▁12")
    assert [piece for piece in pieces if piece.startswith("<")] == ["<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<2de>"]


def test_it_is_a_function_of_seed_epoch_and_index():
    text = " ".join(TEXTS[:3])
    cuts = {key: cut(text, 0.3, *key)[0] for key in itertools.product((0, 1), (0, 1), (0, 1, 2))}
    assert len({tuple(ids) for ids in cuts.values()}) == len(cuts)
    assert all(cut(text, 0.3, *key)[0] == ids for key, ids in cuts.items())


def test_what_was_asked_for_before_does_not_matter():
    dropout, ids = BpeDropout(BOTH, 0.3), BOTH.source.encode(" ".join(TEXTS[:3]))
    for index in range(20):
        dropout.pair(ids, ids, epoch=0, index=index)
    assert dropout.pair(ids, ids, epoch=3, index=7) == cut(" ".join(TEXTS[:3]), 0.3, 0, 3, 7)


def exactly(symbols, ranks, p):
    """Return the distribution of algorithm 1 by enumerating every subset of skipped merges."""
    places = [i for i in range(len(symbols) - 1) if symbols[i : i + 2] in ranks]
    if not places:
        return {symbols: Fraction(1)}
    total = Counter()
    for dropped in itertools.product((False, True), repeat=len(places)):
        chance = Fraction(1)
        for each in dropped:
            chance *= p if each else 1 - p
        left = [place for place, each in zip(places, dropped, strict=True) if not each]
        if not left:
            total[symbols] += chance
            continue
        best = min(left, key=lambda place: (ranks[symbols[place : place + 2]], place))
        after = (*symbols[:best], "".join(symbols[best : best + 2]), *symbols[best + 2 :])
        for result, part in exactly(after, ranks, p).items():
            total[result] += chance * part
    return total


@pytest.mark.parametrize("percent", [10, 50])
def test_the_distribution_is_the_papers(percent):
    """Compare with the exact distribution of all outcomes; 6,000 draws, five standard deviations."""
    merges = [("a", "b"), ("c", "d"), ("ab", "cd"), ("b", "c"), ("abcd", "e"), ("d", "e")]
    pieces = ["<pad>", "<s>", "</s>", "<unk>", *"abcde", *(left + right for left, right in merges)]
    model = models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>")

    tokenizer = Tokenizer(json.loads(library.Tokenizer(model).to_str()))
    expected = exactly(tuple("abcde"), {merge: rank for rank, merge in enumerate(merges)}, Fraction(percent, 100))
    assert sum(expected.values()) == 1
    dropout = BpeDropout(Tokenizers(tokenizer), percent / 100)
    plain = tokenizer.encode("abcde")
    draws, seen = 6_000, Counter()
    # Without a decoder the library puts spaces between pieces, so the single piece of the whole word is split again.
    assert tokenizer.pieces(plain) == ["abcde"]
    for index in range(draws // 2):
        for side in dropout.pair(plain, plain, epoch=0, index=index):
            seen[tuple(tokenizer.pieces(side))] += 1
    assert set(seen) <= set(expected)
    for result, chance in expected.items():
        deviation = float(draws * chance * (1 - chance)) ** 0.5
        assert abs(seen[result] - float(draws * chance)) <= 5 * deviation + 1e-9, result


def test_more_dropout_gives_more_pieces():
    text = " ".join(TEXTS[:3])
    counts = [sum(len(cut(text, p, index=i)[0]) for i in range(30)) for p in (0.0, 0.1, 0.3, 0.6, 1.0)]
    assert counts == sorted(counts)
    assert counts[0] < counts[1] < counts[-1]


@pytest.mark.parametrize("kind", ["word", "unigram"])
def test_what_has_no_merges_is_refused(kind):
    with pytest.raises(ArgumentError, match=f"kind '{kind}' given, BPE dropout expects plain BPE"):
        BpeDropout(Tokenizers(train(TEXTS, kind)), 0.1)


def test_a_probability_is_refused():
    with pytest.raises(ArgumentError, match=r"probability: 1.5 given, expected 0 to 1"):
        BpeDropout(BOTH, 1.5)
