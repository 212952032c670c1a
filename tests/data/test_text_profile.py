"""Texts by their shape: what is closed, short, spelled or without spaces."""

import random

import pytest

from regard.data.settings import DataSettings
from regard.data.text_profile import TextProfile, is_unspaced, letters_in_common
from regard.data.vocabulary import automatic_size, different_words, suitable_kind


def lines(draw, words, count=2_000, low=4, high=9):
    return [" ".join(draw.choices(words, k=draw.randint(low, high))) for _ in range(count)]


def invented(draw, count, letters="abcdefghiklmnoprstu", low=4, high=9):
    return ["".join(draw.choices(letters, k=draw.randint(low, high))) for _ in range(count)]


DRAW = random.Random(5)
PHONEMES = lines(DRAW, [f"{a}{b}" for a in "AEIOU" for b in "AHY"] + list("BDFGKLMNPRSTVZ"))
NAMES = invented(DRAW, 3_000)
SENTENCES = lines(DRAW, invented(DRAW, 4_000))
CHINESE = ["".join(DRAW.choices("的一是不了人我在有他这中大来上国个到说们", k=DRAW.randint(8, 40))) for _ in range(500)]
NUMBERS = [str(DRAW.randint(1_900, 1_960)) for _ in range(3_000)]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [(PHONEMES, "word"), (NAMES, "character"), (SENTENCES, "bpe"), (NUMBERS, "character"), (CHINESE, "character")],
    ids=["phonemes", "names", "sentences", "numbers", "chinese"],
)
def test_pieces_suit_the_texts(texts, kind):
    assert suitable_kind(texts) == kind
    assert suitable_kind([text.upper() for text in texts]) == kind
    assert suitable_kind(DRAW.sample(texts, len(texts))) == kind  # whatever their order


def test_a_few_lines_are_never_closed():
    # Of a hundred lines nobody can tell that no new word will come.
    assert suitable_kind(PHONEMES[:100]) != "word"


def test_scripts_without_spaces_and_text_that_was_cut_into_words():
    assert TextProfile.of(CHINESE).unspaced
    assert not TextProfile.of([" ".join(text) for text in CHINESE]).unspaced
    assert not TextProfile.of(SENTENCES).unspaced
    assert TextProfile.of(["สวัสดีชาวโลกวันนี้อากาศดี"]).unspaced
    assert TextProfile.of(["これは日本語の文です"]).unspaced
    assert not TextProfile.of(["오늘은 날씨가 좋습니다"]).unspaced  # Korean has spaces
    assert not any(map(is_unspaced, "abcäß ¡æж�א한"))


def test_nothing_has_no_shape():
    for texts in ([], [""], [" ", "\t"]):
        assert TextProfile.of(texts) == TextProfile(0.0, 0.0, 0.0, 0, False, False)


def test_letters_in_common_are_counted_both_ways():
    latin, cyrillic = ["the cat sat"], ["кот сидел"]
    assert letters_in_common(latin, latin) == 1.0
    assert letters_in_common(latin, cyrillic) == 0.0
    assert letters_in_common([], latin) == 0.0
    many, one = ["кот сидел на окне"] * 1000, ["кот said hello on окно"]
    assert letters_in_common(latin * 1000, many + one) == letters_in_common(many + one, latin * 1000) < 0.1


def test_characters_without_spaces_count_as_words():
    assert different_words(["ab cd", "ab"]) == 2
    assert different_words(["人我在有", "人我"]) == 4
    assert automatic_size(different_words(CHINESE)) == 512  # 500 sentences are not 500 words


@pytest.mark.parametrize(
    ("examples", "held"), [(2, 1), (10, 1), (100, 10), (1_000, 100), (10_000, 500), (10**7, 2_000)]
)
def test_enough_is_held_out_of_any_corpus(examples, held):
    assert DataSettings(held_out="auto").held_out_count(examples) == held
    assert DataSettings(held_out=0.0).held_out_count(examples) == 0
