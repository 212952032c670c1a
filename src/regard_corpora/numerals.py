"""Written numerals of English, German and French, each word with the decimal places it speaks of.

Print joins them with hyphens or without a space; here every part is a word, for models of words: "forty two",
"zwei und vierzig", "quatre vingt dix neuf". Reference: British English ("one hundred and one"), standard German
("ein hundert eins") and the French of France (soixante-dix, quatre-vingts).
"""

from collections.abc import Callable

__all__ = ["HIGHEST", "LANGUAGES", "listed", "spell"]

HIGHEST = 999_999_999


def listed(words: str) -> list[str]:
    return words.split()


Spelt = list[tuple[str, tuple[int, ...]]]  # a word, and the places (0 units, 1 tens, …) it speaks of

ENGLISH = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
ENGLISH_TENS = listed("- - twenty thirty forty fifty sixty seventy eighty ninety")
GERMAN = listed(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn"
)
GERMAN_TENS = listed("- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
FRENCH = listed(
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix_sept "
    "dix_huit dix_neuf"
)
FRENCH_TENS = listed("- - vingt trente quarante cinquante soixante")


def english(number: int, shift: int, last: bool, led: bool) -> Spelt:
    """Spell an English number below a thousand; `led`: a larger part came before, so that tens and units take "and"."""
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
    """Spell a German number below a thousand: units before tens; one is eins at the end, ein before what it counts."""
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
    """Spell a French number below a thousand; `last` lets vingts and cents take their s, which is lost before mille."""
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


LANGUAGES: dict[str, tuple[Callable[[int, int, bool, bool], Spelt], str]] = {
    "en": (english, "zero"),
    "de": (german, "null"),
    "fr": (french, "zéro"),
}


def spell(number: int, language: str) -> Spelt:
    """Spell a number from 0 to HIGHEST in words."""
    small, zero = LANGUAGES[language]
    if number == 0:
        return [(zero, (0,))]
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
    """Make a German numeral feminine, as before millions: zwei hundert eine Millionen."""
    word, digits = spelt[-1]
    return [*spelt[:-1], ("eine" if word == "eins" else word, digits)]
