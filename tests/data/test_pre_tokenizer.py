"""Text before tokenization: normalised, marked, split, joined again; added words that stand alone."""

import json
import unicodedata

import tokenizers as library
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from regard.data.pre_tokenizer import (
    MARK,
    AddedWords,
    leading_word,
    mark_words,
    normalise,
    separable,
    unmark_words,
    words,
)

TEXTS = st.text(st.sampled_from("aÄe\u0301 1,<>'漢\u2003\t▁_"), max_size=30)


def parts(before, text):
    return [part for part, _ in before.pre_tokenize_str(text)]


@given(TEXTS, st.booleans())
def test_normalised_text_has_single_spaces_and_stays(text, lowercase):
    made = normalise(lowercase).normalize_str(text)
    assert made == " ".join(made.split())
    assert MARK not in made
    assert normalise(lowercase).normalize_str(made) == made
    assert made == unicodedata.normalize("NFC", made)
    if lowercase:
        assert made == made.lower()


@given(TEXTS)
def test_words_are_cut_into_parts_that_give_them_back(text):
    text = normalise(False).normalize_str(text)
    cut = parts(mark_words(cut=True), text)
    if text:
        assert unmark_words(prepended=True).decode(cut) == text
    assert all(part.rfind(MARK) <= 0 for part in cut)  # a mark only begins a part
    assert parts(words(), text) == text.split(" ") * bool(text)


def test_a_digit_and_a_bracket_stand_alone():
    assert parts(mark_words(cut=True), "ab 12 <x> don't") == [
        "▁ab", "▁1", "2", "▁<", "x", ">", "▁don", "'", "t"
    ]  # fmt: skip
    assert parts(mark_words(cut=False), "ab c") == ["ab▁c"]


def test_only_what_never_looks_across_a_space_is_separable():
    shell = library.Tokenizer(models.BPE())
    for before, right in ((mark_words(cut=True), True), (words(), True), (mark_words(cut=False), False)):
        shell.normalizer, shell.pre_tokenizer = normalise(True), before
        assert separable(json.loads(shell.to_str())) == right
    assert not separable({})


# ---- added words


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
    if word and " " not in text:  # a word that it finds is found again
        assert AddedWords({word: 1}, spell).encode(text) == [1, *spell(text[len(word) :])]
