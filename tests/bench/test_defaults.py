"""Corpora that the defaults are tried on: made from nothing, different pairs, and what they are to show."""

import itertools
import random
import re

import pytest

from regard_bench import defaults


@pytest.fixture
def draw():
    return random.Random(7)


def test_pairs_are_different_and_in_order():
    drawn = iter([("a", "b"), ("c", "d"), ("a", "b"), ("e", "f"), ("g", "h")])
    assert defaults.unique(lambda: next(drawn), 3) == [("a", "b"), ("c", "d"), ("e", "f")]


def test_a_transliteration_is_of_another_script(draw):
    for _ in range(200):
        latin, cyrillic = defaults.draw_transliteration(draw)
        assert re.fullmatch(r"[A-Z][a-z]+", latin)
        assert re.fullmatch(r"[А-Я][а-я]+", cyrillic)
        assert len(cyrillic) <= len(latin)  # some sounds take two Latin letters


def test_a_chinese_date_has_no_space(draw):
    for _ in range(200):
        english, chinese = defaults.chinese_date(draw)
        assert " " not in chinese
        assert "  " not in english
        year = "".join(str(defaults.DIGITS.index(digit)) for digit in chinese.split("年")[0])
        assert english.endswith(year)


def test_a_hebrew_sentence_has_every_word(draw):
    words = defaults.PEOPLE | defaults.VERBS | defaults.NOUNS | defaults.ADJECTIVES
    for _ in range(200):
        english, hebrew = defaults.hebrew(draw)
        assert english.endswith(" .")
        assert hebrew.endswith(" .")
        assert "  " not in english + hebrew
        for one, other in words.items():
            if re.search(rf"\b{one}\b", english):
                assert other in hebrew


def test_long_lines_are_whole_sentences():
    sentences = ((f"a{i} b c", f"d{i}") for i in itertools.count())
    source, target = defaults.long_pair(sentences)
    assert len(source.split()) == 150
    assert target.split() == [f"d{i}" for i in range(50)]
