"""The phrasebook in both pairs: one translation per sentence, trees, links, sizes."""

import collections
import itertools
import re
from pathlib import Path

import pytest
from corpora.phrasebook import draws
from corpora.phrasebook.cases import BY_HAND, derived, sample, spaced, without_hook

import regard_corpora.phrasebook as phrasebook
from regard.data import generate

PAIRS = ("en-de", "en-fr")


@pytest.mark.parametrize("pair", PAIRS)
def test_heads_are_trees(pair):
    for example in spaced(pair):
        for text, heads in ((example.source, example.source_heads), (example.target, example.target_heads)):
            words = text.split()
            assert len(heads) == len(words)
            assert heads.count(-1) == 1, text
            for start in range(len(words)):
                seen = set()
                while start != -1:
                    assert start not in seen, f"{text}: a circle"
                    seen.add(start)
                    start = heads[start]
                    assert -1 <= start < len(words)
            root = heads.index(-1)
            assert re.search(r"\w", words[root])
            assert heads[-1] == root  # the full stop


SILENT = {  # words that may have no link to the other side
    "en": {"to", "for", "at", "of", "with", "that", "who"},
    "de": {","},
    "fr": {"est-ce", "que", "qu'", ","},
}


@pytest.mark.parametrize("pair", PAIRS)
def test_links_are_valid_and_content_words_have_one(pair):
    for example in spaced(pair):
        sides = example.source.split(), example.target.split()
        assert list(example.alignment) == sorted(set(example.alignment))
        for side, (language, words) in enumerate(zip(pair.split("-"), sides, strict=True)):
            linked = {link[side] for link in example.alignment}
            assert linked <= set(range(len(words)))
            alone = {words[i] for i in range(len(words)) if i not in linked}
            assert alone <= SILENT[language], f"{example.source} | {example.target}: {alone} of {language} has no link"


@pytest.mark.parametrize("pair", PAIRS)
def test_names_and_punctuation_are_linked_with_themselves(pair):
    for example in sample(pair)[:5000]:
        source, target = example.source.split(), example.target.split()
        assert (len(source) - 1, len(target) - 1) in example.alignment
        for i, j in example.alignment:
            if target[j] in ("Anna", "Peter", "Maria", "Paul", "Julia", "Martin"):
                assert source[i] == target[j]


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_sentence_has_one_translation(pair, edition):
    """Check sentences as drawn, duplicates included."""
    random, found, doubles = iter_random(), {}, 0
    options = phrasebook.Options(pair, edition=edition)
    for example in itertools.islice(phrasebook.draw(random, lambda source: len(source) < 32, options), 2500):
        if example is not None:
            doubles += example.source in found
            assert found.setdefault(example.source, example.target) == example.target
    assert doubles > 5


def iter_random():
    import random

    return random.Random(8).random


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_three_hundred_thousand_sentences(pair):
    """All are distinct, and repeated draws have the same translation."""
    assert without_hook(draws.count, pair) == (300_000, 0)


@pytest.mark.parametrize("pair", PAIRS)
def test_sizes(pair):
    """Check the default corpus's figures: lengths, vocabulary, every word often enough to be learnt."""
    examples = sample(pair)
    lengths = [len(example.source.split()) for example in examples]
    assert min(lengths) == 3
    assert max(lengths) == 14
    assert 8 <= sum(lengths) / len(lengths) <= 9
    for side in ("source", "target"):
        words = collections.Counter(word for example in examples for word in getattr(example, side).split())
        assert 500 < len(words) < 1300
        known = [min(words[word] for word in getattr(example, side).split()) >= 10 for example in examples]
        assert sum(known) / len(known) > 0.93  # few sentences contain a rare form


def test_every_entry_is_frequent_enough():
    """Thirty times in thirty thousand, over all forms."""
    words = collections.Counter(word for example in sample("en-de") for word in example.source.split())
    table = Path(phrasebook.__file__).with_name("words.toml").read_text(encoding="utf-8")
    rare = {}
    for line in table.splitlines()[2:]:
        if "|" in line:
            english = line.split("|")[0].split(" / ")[0]
            forms = [re.sub(r"[:*].*|^[~+]", "", word) for word in english.split() if word[0] not in "-#"]
            stem = forms[0]
            every = {*forms, stem + "s", stem + "es", stem[:-1] + "ies", stem + "ed", stem + "d", stem + "ing"}
            every |= {stem[:-1] + "ing", stem[:-1] + "ied"}
            count = sum(words[form] for form in every)
            if count < 20:  # of 20,000
                rare[english] = count
    assert not rare


def test_longer_and_shorter_on_request():
    for longest, shortest in ((4, 3), (25, 15)):
        options = {"longest": longest, "shortest": shortest}
        lengths = {len(e.source.split()) for e in generate("phrasebook", 40, edition=1, **options)}
        assert shortest <= min(lengths) <= max(lengths) <= longest
        written = [len(e.source.split()) for e in generate("phrasebook", 40, **options)]
        assert shortest / 2 < max(written) < longest  # there the full stop is not a separate word


def test_both_pairs_have_the_same_english():
    assert [e.source for e in sample("en-de")[:500]] == [e.source for e in sample("en-fr")[:500]]


@pytest.mark.parametrize(("english", "german", "french"), BY_HAND, ids=[row[0] for row in BY_HAND])
def test_translated_by_hand(english, german, french):
    assert derived()[english] == (None if german is None else [german, french])


def test_derive_gives_the_whole_example():
    found = phrasebook.derive("I ate pizza yesterday .", edition=1)
    assert found is not None
    assert found.target == "ich habe gestern Pizza gegessen ."
    assert found.alignment == ((0, 0), (1, 1), (1, 4), (2, 3), (3, 2), (4, 5))
    assert found.source_heads == (1, -1, 1, 1, 1)
    assert found.target_heads == (4, 4, 4, 4, -1, 4)
    assert phrasebook.derive("colourless green ideas sleep furiously .", tries=300, edition=1) is None
