"""Numbers: written numerals to digits, or back.

"three hundred and forty two" and "3 4 2": every digit is a word, so that word-level models can learn it. In print, the
words of a numeral are joined with hyphens or without a space; here every part is a word: "forty two", "zwei und
vierzig", "quatre vingt dix neuf". The numerals are those of British English ("one hundred and one"), standard German
("ein hundert eins") and the French of France (soixante-dix, quatre-vingts). A word is linked to the digits that it
expresses ("thirteen" to two of them); a zero that is not spoken has no link.

Options: `language` en, de or fr; `direction` to-digits or to-words; `lowest` and `highest`. Every number of digits is
equally likely.
"""

import dataclasses
from collections.abc import Callable, Iterator

from regard.data import Example, builtin
from regard_corpora import tables

__all__ = ["HIGHEST", "LANGUAGES", "NUMERALS", "Options", "draw", "every", "spell"]

DIRECTIONS = ("to-digits", "to-words")
HIGHEST = 999_999_999
NUMERALS = {
    language: {name: words.split() for name, words in table.items()}
    for language, table in tables.read("numbers.toml").items()
}
Spelt = list[tuple[str, tuple[int, ...]]]  # words, each with the places (0 units, 1 tens, …) that it expresses
(ENGLISH, ENGLISH_TENS), (GERMAN, GERMAN_TENS), (FRENCH, FRENCH_TENS) = (
    (NUMERALS[language]["units"], NUMERALS[language]["tens"]) for language in ("en", "de", "fr")
)


def english(number: int, shift: int, last: bool, led: bool) -> Spelt:
    """Spell an English number below a thousand; with `led`, a larger part precedes it, so tens and units take "and"."""
    words: Spelt = []
    hundreds, rest = divmod(number, 100)
    if hundreds:
        words += [(ENGLISH[hundreds], (shift + 2,)), ("hundred", (shift + 2,))]
    if rest and (hundreds or led):
        words.append(("and", ()))
    if rest >= 20:
        words.append((ENGLISH_TENS[rest // 10], (shift + 1,)))
        if rest % 10:
            words.append((ENGLISH[rest % 10], (shift,)))
    elif rest:
        words.append((ENGLISH[rest], (shift,) if rest < 10 else (shift, shift + 1)))
    return words


def german(number: int, shift: int, last: bool, led: bool) -> Spelt:
    """Spell a German number below a thousand: units precede tens; one is "eins" at the end, otherwise "ein"."""
    words: Spelt = []
    hundreds, rest = divmod(number, 100)
    if hundreds:
        words += [("ein" if hundreds == 1 else GERMAN[hundreds], (shift + 2,)), ("hundert", (shift + 2,))]
    if rest >= 20:
        if rest % 10:
            words += [("ein" if rest % 10 == 1 else GERMAN[rest % 10], (shift,)), ("und", ())]
        words.append((GERMAN_TENS[rest // 10], (shift + 1,)))
    elif rest == 1 and not last:
        words.append(("ein", (shift,)))
    elif rest:
        words.append((GERMAN[rest], (shift,) if rest < 10 else (shift, shift + 1)))
    return words


def french(number: int, shift: int, last: bool, led: bool) -> Spelt:
    """Spell a French number below a thousand; only with `last`, not before mille, vingts and cents have their s."""
    words: Spelt = []
    hundreds, rest = divmod(number, 100)
    if hundreds:
        if hundreds > 1:
            words.append((FRENCH[hundreds], (shift + 2,)))
        words.append(("cents" if hundreds > 1 and not rest and last else "cent", (shift + 2,)))
    tens, units = divmod(rest, 10)
    if rest < 20:
        if rest:
            digits = (shift,) if rest < 10 else (shift, shift + 1)
            words += [(word, digits) for word in FRENCH[rest].split("_")]
    elif tens < 7:
        words.append((FRENCH_TENS[tens], (shift + 1,)))
        if units == 1:
            words.append(("et", ()))
        if units:
            words.append((FRENCH[units], (shift,)))
    else:
        odd = tens % 2 == 1  # soixante-dix and quatre-vingt-dix count on to nineteen
        if tens < 8:
            words.append(("soixante", (shift + 1,)))
            if rest == 71:
                words.append(("et", ()))
        else:
            words += [("quatre", (shift + 1,)), ("vingts" if rest == 80 and last else "vingt", (shift + 1,))]
        if odd:
            words += [(word, (shift, shift + 1)) for word in FRENCH[10 + units].split("_")]
        elif units:
            words.append((FRENCH[units], (shift,)))
    return words


LANGUAGES: dict[str, Callable[[int, int, bool, bool], Spelt]] = {"en": english, "de": german, "fr": french}


def spell(number: int, language: str) -> Spelt:
    """Spell a number from 0 to HIGHEST in words."""
    small = LANGUAGES[language]
    if number == 0:
        return [(NUMERALS[language]["units"][0], (0,))]
    millions, thousands, ones = number // 1_000_000, number // 1000 % 1000, number % 1000
    words: Spelt = []
    if millions:
        if language == "de":
            words += [("eine", (6,))] if millions == 1 else feminine(small(millions, 6, True, False))
            words.append(("Million" if millions == 1 else "Millionen", (6,)))
        else:
            words += small(millions, 6, True, False)
            plural = language == "fr" and millions > 1
            words.append(("millions" if plural else "million", (6,)))
    if thousands:
        if language != "fr" or thousands > 1:
            words += small(thousands, 3, False, bool(millions) and thousands < 100 and not ones)
        words.append(({"en": "thousand", "de": "tausend", "fr": "mille"}[language], (3,)))
    if ones:
        words += small(ones, 0, True, bool(words))
    return words


def feminine(spelt: Spelt) -> Spelt:
    """Make a German numeral feminine, as in "zwei hundert eine Millionen"."""
    word, digits = spelt[-1]
    return [*spelt[:-1], ("eine" if word == "eins" else word, digits)]


@dataclasses.dataclass(frozen=True)
class Options:
    language: str = "en"
    direction: str = "to-digits"
    lowest: int = 0
    highest: int = 999_999

    def __post_init__(self) -> None:
        builtin.check_name("language", self.language, LANGUAGES)
        builtin.check_name("direction", self.direction, DIRECTIONS)
        builtin.check_whole("lowest", self.lowest, 0, HIGHEST)
        builtin.check_whole("highest", self.highest, self.lowest, HIGHEST)


def make(number: int, accept: builtin.SourceFilter, options: Options) -> Example | None:
    digits = str(number)
    spelt = spell(number, options.language)
    words, figures = " ".join([word for word, _ in spelt]), " ".join(digits)
    forth = options.direction == "to-digits"
    if not accept(words if forth else figures):
        return None
    last = len(digits) - 1
    links = [(index, last - place) for index, (_, columns) in enumerate(spelt) for place in columns if place <= last]
    if forth:
        return Example(words, figures, tuple(sorted(links)))
    return Example(figures, words, tuple(sorted((digit, word) for word, digit in links)))


def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Draw numbers endlessly; yield None for one that `accept` refuses."""
    fewest, most = len(str(options.lowest)), len(str(options.highest))
    while True:
        size = fewest + int(random() * (most - fewest + 1))
        low = max(options.lowest, 10 ** (size - 1) if size > 1 else 0)
        high = min(options.highest, 10**size - 1)
        yield make(low + int(random() * (high - low + 1)), accept, options)


def every(accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Yield every number once."""
    return (make(number, accept, options) for number in range(options.lowest, options.highest + 1))
