"""Numbers: against a parser of numerals independent of the speller, and against numerals by hand."""

import hypothesis
import pytest
from hypothesis import strategies as st

from regard.data import generate
from regard_corpora.numbers import spell


def listed(words):
    return words.split()


BY_HAND = {
    "en": {
        0: "zero",
        13: "thirteen",
        21: "twenty one",
        100: "one hundred",
        101: "one hundred and one",
        342: "three hundred and forty two",
        1000: "one thousand",
        1001: "one thousand and one",
        1100: "one thousand one hundred",
        12_345: "twelve thousand three hundred and forty five",
        100_000: "one hundred thousand",
        999_999: "nine hundred and ninety nine thousand nine hundred and ninety nine",
        2_000_013: "two million and thirteen",
    },
    "de": {
        0: "null",
        1: "eins",
        16: "sechzehn",
        17: "siebzehn",
        21: "ein und zwanzig",
        30: "dreißig",
        67: "sieben und sechzig",
        101: "ein hundert eins",
        342: "drei hundert zwei und vierzig",
        1001: "ein tausend eins",
        21_000: "ein und zwanzig tausend",
        101_000: "ein hundert ein tausend",
        1_000_000: "eine Million",
        2_000_001: "zwei Millionen eins",
    },
    "fr": {
        0: "zéro",
        16: "seize",
        17: "dix sept",
        21: "vingt et un",
        22: "vingt deux",
        61: "soixante et un",
        70: "soixante dix",
        71: "soixante et onze",
        77: "soixante dix sept",
        80: "quatre vingts",
        81: "quatre vingt un",
        91: "quatre vingt onze",
        99: "quatre vingt dix neuf",
        100: "cent",
        200: "deux cents",
        201: "deux cent un",
        1000: "mille",
        1999: "mille neuf cent quatre vingt dix neuf",
        80_000: "quatre vingt mille",
        200_000: "deux cent mille",
        1_000_000: "un million",
        200_000_000: "deux cents millions",
    },
}
SMALL = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen",
    "de": "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
}
VALUES = {language: {word: n for n, word in enumerate(words.split())} for language, words in SMALL.items()}
VALUES["en"] |= {w: 10 * n for n, w in enumerate(listed("twenty thirty forty fifty sixty seventy eighty ninety"), 2)}
VALUES["de"] |= {
    w: 10 * n for n, w in enumerate(listed("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"), 2)
} | {"ein": 1, "eine": 1}
VALUES["fr"] |= {w: 10 * n for n, w in enumerate(listed("vingt trente quarante cinquante soixante"), 2)} | {
    "vingts": 20
}
HUNDRED = {"hundred", "hundert", "cent", "cents"}
LARGE = {"thousand": 1000, "tausend": 1000, "mille": 1000, "million": 10**6, "millions": 10**6}
LARGE |= {"Million": 10**6, "Millionen": 10**6}


def read(words, language):
    """Return the value of a numeral, word by word."""
    total = part = 0
    for word in words:
        if word in HUNDRED:
            rest = part % 100 or 1
            part = part - part % 100 + 100 * rest
        elif word in LARGE:
            total += (part or 1) * LARGE[word]
            part = 0
        elif word in ("vingt", "vingts") and language == "fr" and part % 100 == 4:
            part += 76
        elif word not in ("and", "und", "et"):
            part += VALUES[language][word]
    return total + part


@pytest.mark.parametrize("language", BY_HAND)
def test_by_hand(language):
    for number, words in BY_HAND[language].items():
        assert " ".join(word for word, _ in spell(number, language)) == words


@hypothesis.given(st.one_of(st.integers(0, 1100), st.integers(0, 999_999_999)), st.sampled_from(["en", "de", "fr"]))
def test_a_reader_reads_what_is_spelt(number, language):
    assert read([word for word, _ in spell(number, language)], language) == number


@pytest.mark.parametrize("language", BY_HAND)
def test_no_two_numbers_are_spelt_alike(language):
    spelt = {tuple(word for word, _ in spell(number, language)) for number in range(3000)}
    assert len(spelt) == 3000


@pytest.mark.parametrize("language", BY_HAND)
@pytest.mark.parametrize("direction", ["to-digits", "to-words"])
def test_both_directions(language, direction):
    sizes = set()
    for example in generate("numbers", 300, language=language, direction=direction):
        words, digits = example.source.split(), example.target.split()
        links = example.alignment
        if direction == "to-words":
            words, digits = digits, words
            links = [(word, digit) for digit, word in links]
        assert read(words, language) == int("".join(digits))
        sizes.add(len(digits))
        linked = {digit for _, digit in links}
        assert {i for i, digit in enumerate(digits) if digit != "0"} <= linked
        silent = {"and", "und", "et"}
        assert {word for word, _ in links} == {i for i, word in enumerate(words) if word not in silent}
    assert sizes == {1, 2, 3, 4, 5, 6}


def test_bounds_are_kept():
    found = {int(e.target.replace(" ", "")) for e in generate("numbers", 40, lowest=95, highest=140)}
    assert 95 <= min(found) <= max(found) <= 140
    assert len(found) == 40
