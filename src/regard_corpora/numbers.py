"""Numbers: written numerals to digits, or back.

"three hundred and forty two" and "3 4 2": every digit is a word, so that models of words can do it, and the words of a
numeral stand apart (`numerals`). A word is linked with the digits it speaks of ("thirteen" with two of them); a zero
that is not spoken has no link.

Options: `language` en, de or fr; `direction` to-digits or to-words; `lowest` and `highest`. Every number of digits is
equally likely.
"""

import dataclasses
from collections.abc import Callable, Iterator

from regard.data import Example, builtin
from regard_corpora.numerals import HIGHEST, LANGUAGES, spell

__all__ = ["Options", "draw", "every"]

DIRECTIONS = ("to-digits", "to-words")


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
    """Draw numbers without end; None for one that `accept` refuses."""
    fewest, most = len(str(options.lowest)), len(str(options.highest))
    while True:
        size = fewest + int(random() * (most - fewest + 1))
        low = max(options.lowest, 10 ** (size - 1) if size > 1 else 0)
        high = min(options.highest, 10**size - 1)
        yield make(low + int(random() * (high - low + 1)), accept, options)


def every(accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Yield every number once."""
    return (make(number, accept, options) for number in range(options.lowest, options.highest + 1))
