"""A profile of texts, by which pieces and metrics are chosen: words or symbols, long or short, spaced or not.

Nothing here knows a language. Texts are *closed* where a hundred words are all that ever comes (phonemes, commands,
letters written apart), *short* where a line is a word or a name, and *unspaced* where their script has no spaces.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

LINES = 20_000  # looked at, at most
CLOSED = 128  # words
ALPHABET = 256  # letters, at most: Chinese characters written apart are words
NEW = 0.001  # the share of new words that is expected of a closed side, at most
# Blocks of scripts that are written without spaces between words: Thai and Lao, Tibetan, Burmese, Khmer, kana, Han.
BLOCKS: tuple[tuple[int, int], ...] = (
    (0x0E00, 0x0EFF), (0x0F00, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF),
)  # fmt: skip


def is_unspaced(character: str) -> bool:
    """Return whether a character is of a script without spaces between words."""
    code = ord(character)
    return code >= BLOCKS[0][0] and any(first <= code <= last for first, last in BLOCKS)


@dataclass(frozen=True)
class TextProfile:
    """A profile of the lines of one side."""

    words: float  # of a line, between spaces: the median
    characters: float  # of a line, without spaces: the median
    word_length: float  # characters: the mean
    types: int  # different words
    unspaced: bool
    closed: bool

    @classmethod
    def of(cls, texts: Sequence[str]) -> "TextProfile":
        """Profile some texts; of many, a sample at even intervals."""
        rows = [text.split() for text in texts[:: max(1, len(texts) // LINES)]]
        rows = [row for row in rows if row]
        if not rows:
            return cls(0.0, 0.0, 0.0, 0, False, False)
        counts = Counter(word for row in rows for word in row)
        total = sum(counts.values())
        letters = Counter[bool]()
        for word, count in counts.items():
            for character in word:
                if character.isalpha():
                    letters[is_unspaced(character)] += count
        length = sum(len(word) * count for word, count in counts.items()) / total
        # By Good and Turing, words seen once are as likely as those that were not seen at all.
        once = sum(count == 1 for count in counts.values())
        return cls(
            words=statistics.median(map(len, rows)),
            characters=statistics.median(sum(map(len, row)) for row in rows),
            word_length=length,
            types=len(counts),
            # Text that was cut into words beforehand has spaces, whatever its script.
            unspaced=letters[True] > letters[False] and length > 4,
            # Numbers are never all there: others have the same digits.
            closed=len(counts) <= CLOSED
            and total >= 1_000
            and once <= NEW * total
            and not any(len(word) > 1 and word.isdecimal() for word in counts),
        )

    @property
    def short(self) -> bool:
        """Return whether a line is a word, a name or a number."""
        return self.words <= 3 and self.characters <= 30

    @property
    def spelled(self) -> bool:
        """Return whether words are single characters, or symbols of a small inventory."""
        return self.closed or (self.word_length <= 1.2 and self.types <= ALPHABET)


def letters_in_common(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the share of each side's letters, by frequency, that the other side has too: the smaller of the two."""
    sides = [
        Counter(c for text in texts[:: max(1, len(texts) // LINES)] for c in text if c.isalpha())
        for texts in (first, second)
    ]

    def share(own: Counter[str], other: Counter[str]) -> float:
        # One name in foreign letters does not make an alphabet.
        least = max(1, sum(other.values()) // 10_000)
        return sum(n for c, n in own.items() if other[c] >= least) / max(1, sum(own.values()))

    return min(share(sides[0], sides[1]), share(sides[1], sides[0]))
