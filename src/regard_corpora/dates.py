"""Dates: many written forms to ISO 8601, or back.

"the third of May 1 9 9 8", "May 3 , 1 9 9 8", "3 . 5 . 9 8" and "1 9 9 8 - 0 5 - 0 3": every digit is a word, so that
word-level models can learn it. With dots, the day comes first, with slashes, the month. Two-digit years mean 1950 to
2049. Words are linked to the digits that they express.

Options: `direction` to-iso or from-iso; `form` one of FORMS, or any (all of them for to-iso, but only "long" for
from-iso, as a source has one target); `first` and `last`, the years.
"""

import dataclasses
import datetime
from collections.abc import Callable, Iterator

from regard.data import Example, builtin
from regard.errors import ArgumentError
from regard_corpora.numbers import NUMERALS, spell

__all__ = ["FORMS", "Options", "draw", "every"]

MONTHS, WEEKDAYS, ORDINALS = (NUMERALS["en"][name] for name in ("months", "weekdays", "ordinals"))
DIRECTIONS = ("to-iso", "from-iso")
DAY, MONTH = (6, 7), (4, 5)  # places in YYYYMMDD
Written = list[tuple[str, tuple[int, ...]]]  # words, each with the places that it expresses


def year(date: datetime.date) -> Written:
    return [(digit, (place,)) for place, digit in enumerate(f"{date.year:04}")]


def speak_year(date: datetime.date) -> Written:
    """Spell a year: nineteen ninety eight, nineteen oh five, two thousand and five, twenty ten."""
    century, rest = divmod(date.year, 100)
    if date.year // 10 == 200:
        digits = (0, 1) if rest else (0, 1, 2, 3)
        words: Written = [("two", digits), ("thousand", digits)]
        return words + ([("and", ()), (spell(rest, "en")[0][0], (2, 3))] if rest else [])
    words = [(word, (0, 1)) for word, _ in spell(century, "en")]
    if rest == 0:
        return [*words, ("hundred", (2, 3))]
    if rest < 10:
        return [*words, ("oh", (2,)), (spell(rest, "en")[0][0], (3,))]
    return words + [(word, tuple(3 - place for place in reversed(digits))) for word, digits in spell(rest, "en")]


def ordinal(date: datetime.date) -> Written:
    return [(word, DAY) for word in ORDINALS[date.day - 1].split("_")]


def figures(number: int, columns: tuple[int, int]) -> Written:
    """Write a day or a month in digits, without a leading zero."""
    digits = str(number)
    return [(digit, (place,)) for digit, place in zip(digits, columns[-len(digits) :], strict=True)]


def month(date: datetime.date) -> Written:
    return [(MONTHS[date.month - 1], MONTH)]


def mark(sign: str) -> Written:
    return [(sign, ())]


FORMS: dict[str, Callable[[datetime.date], Written]] = {
    "long": lambda d: [*mark("the"), *ordinal(d), *mark("of"), *month(d), *year(d)],
    "spoken": lambda d: [*mark("the"), *ordinal(d), *mark("of"), *month(d), *speak_year(d)],
    "ordinal": lambda d: [*month(d), *ordinal(d), *mark(","), *year(d)],
    "british": lambda d: [*figures(d.day, DAY), *month(d), *year(d)],
    "american": lambda d: [*month(d), *figures(d.day, DAY), *mark(","), *year(d)],
    "weekday": lambda d: [*mark(WEEKDAYS[d.weekday()]), *mark(","), *figures(d.day, DAY), *month(d), *year(d)],
    "dots": lambda d: [*figures(d.day, DAY), *mark("."), *figures(d.month, MONTH), *mark("."), *year(d)],
    "short": lambda d: [*figures(d.day, DAY), *mark("."), *figures(d.month, MONTH), *mark("."), *year(d)[2:]],
    "slashes": lambda d: [*figures(d.month, MONTH), *mark("/"), *figures(d.day, DAY), *mark("/"), *year(d)],
}
LIMITS = {"short": (1950, 2049), "spoken": (1100, 2099)}  # years that a form expresses unambiguously


@dataclasses.dataclass(frozen=True)
class Options:
    direction: str = "to-iso"
    form: str = "any"
    first: int = 1900
    last: int = 2099

    def __post_init__(self) -> None:
        builtin.check_name("direction", self.direction, DIRECTIONS)
        builtin.check_name("form", self.form, ("any", *FORMS))
        builtin.check_whole("first", self.first, 1, 9999)
        builtin.check_whole("last", self.last, self.first, 9999)
        low, high = LIMITS.get(self.form, (1, 9999))
        if self.first < low or self.last > high:
            expected = f"expected {low} to {high} for the form {self.form}"
            raise ArgumentError(f"first, last: {self.first} to {self.last} given, {expected}")

    @property
    def forms(self) -> tuple[str, ...]:
        if self.form != "any":
            return (self.form,)
        return ("long",) if self.direction == "from-iso" else tuple(FORMS)


def make(date: datetime.date, form: str, accept: builtin.SourceFilter, direction: str) -> Example | None:
    low, high = LIMITS.get(form, (1, 9999))
    if not low <= date.year <= high:
        return None
    form_words = FORMS[form](date)
    words, iso = " ".join([word for word, _ in form_words]), " ".join(date.isoformat())
    if not accept(words if direction == "to-iso" else iso):
        return None
    # Places count digits; the ISO form has hyphens after the fourth and the sixth digit.
    links = [(index, p + (p > 3) + (p > 5)) for index, (_, digits) in enumerate(form_words) for p in digits]
    if direction == "to-iso":
        return Example(words, iso, tuple(sorted(links)))
    return Example(iso, words, tuple(sorted((digit, word) for word, digit in links)))


def days(options: Options) -> tuple[int, int]:
    return datetime.date(options.first, 1, 1).toordinal(), datetime.date(options.last, 12, 31).toordinal()


def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Draw dates endlessly; yield None for one that `accept` refuses."""
    low, high = days(options)
    forms = options.forms
    while True:
        date = datetime.date.fromordinal(low + int(random() * (high - low + 1)))
        yield make(date, forms[int(random() * len(forms))], accept, options.direction)


def every(accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Yield every date in every form once."""
    low, high = days(options)
    return (
        make(datetime.date.fromordinal(day), form, accept, options.direction)
        for day in range(low, high + 1)
        for form in options.forms
    )
