"""Added words are found where they stand alone, and nothing else is."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from regard.data.added_words import AddedWords, leading_word


def spell(text: str) -> list[int]:
    return [1000 + ord(character) for character in text]


def test_the_longest_word_that_stands_alone():
    words = AddedWords({"a": 1, "a-b": 2, "नमस्ते": 3, "z.B.": 4}, spell)
    assert words.encode("a") == [1]
    assert words.encode("a-b!") == [2, *spell("!")]
    assert words.encode("a-bc") == [1, *spell("-bc")]
    assert words.encode("नमस्ते।") == [3, *spell("।")]
    assert words.encode("z.B.,") == [4, *spell(",")]
    for other in ("ab", "a1", "a_", "a\u0301", "नमस्तेे", "(a)", "", "a b", "b"):
        assert words.encode(other) is None


def test_without_a_rest_only_whole_words():
    words = AddedWords({"a": 1}, None)
    assert words.encode("a") == [1]
    assert words.encode("a,") is None


@given(st.text(max_size=8), st.text(min_size=1, max_size=4))
def test_a_leading_word_is_followed_by_no_letter(text, more):
    word = leading_word(text)
    assert text.startswith(word)
    assert all(unicodedata.category(each)[0] in "LMN" or each == "_" for each in word)
    assert len(word) == len(text) or leading_word(text[len(word) :]) == ""
    if word and " " not in text:  # what it finds is found again
        assert AddedWords({word: 1}, spell).encode(text) == [1, *spell(text[len(word) :])]
