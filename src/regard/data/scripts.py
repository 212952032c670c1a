"""Scripts of texts: how many letters of each line are of a side's own script, and which lines are of another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8

# First and last code point of letters. Han and kana are one script here, as Japanese is written in both.
RANGES: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = (
    ("Latin", ((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x2AF), (0x1D00, 0x1D25), (0x1E00, 0x1EFF), (0x2C60, 0x2C7F),
               (0xA720, 0xA7FF), (0xFB00, 0xFB06), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A))),
    ("Greek", ((0x370, 0x3FF), (0x1F00, 0x1FFF))),
    ("Cyrillic", ((0x400, 0x52F), (0x1C80, 0x1C8F), (0x2DE0, 0x2DFF), (0xA640, 0xA69F))),
    ("Armenian", ((0x531, 0x58F), (0xFB13, 0xFB17))),
    ("Hebrew", ((0x5D0, 0x5F4), (0xFB1D, 0xFB4F))),
    ("Arabic", ((0x620, 0x65F), (0x66E, 0x6EF), (0x750, 0x77F), (0x8A0, 0x8FF), (0xFB50, 0xFDFF), (0xFE70, 0xFEFC))),
    ("Devanagari", ((0x900, 0x965), (0x970, 0x97F))),
    ("Bengali", ((0x980, 0x9E5),)),
    ("Gurmukhi", ((0xA00, 0xA65),)),
    ("Gujarati", ((0xA80, 0xAE5),)),
    ("Oriya", ((0xB00, 0xB65),)),
    ("Tamil", ((0xB80, 0xBE5),)),
    ("Telugu", ((0xC00, 0xC65),)),
    ("Kannada", ((0xC80, 0xCE5),)),
    ("Malayalam", ((0xD00, 0xD65),)),
    ("Sinhala", ((0xD80, 0xDE5),)),
    ("Thai", ((0xE01, 0xE4E),)),
    ("Lao", ((0xE81, 0xECE),)),
    ("Tibetan", ((0xF40, 0xFBC),)),
    ("Burmese", ((0x1000, 0x103F), (0x1050, 0x108F))),
    ("Georgian", ((0x10A0, 0x10FF), (0x1C90, 0x1CBF), (0x2D00, 0x2D2F))),
    ("Ethiopic", ((0x1200, 0x139F), (0x2D80, 0x2DDF))),
    ("Khmer", ((0x1780, 0x17D3),)),
    ("Mongolian", ((0x1820, 0x18AF),)),
    ("Korean", ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7AF))),
    ("Chinese and Japanese", ((0x3041, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF),
                              (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF))),
)  # fmt: skip
SCRIPTS = tuple(name for name, _ in RANGES)
CHUNK = 10_000  # texts that are looked at together
LEAST = 4  # letters of a line that can be of another script: three may be a name, or a formula
MAIN = 0.2  # share of a side's letters from which a script is one of its own


def build_table() -> UInt8[np.ndarray, " codes"]:
    """Build the table from a code point to the number of its script, from 1; 0 for all that is no letter."""
    table = np.zeros(0x110000, np.uint8)
    for number, (_, ranges) in enumerate(RANGES, 1):
        for first, last in ranges:
            table[first : last + 1] = number
    table[[0xD7, 0xF7]] = 0  # × and ÷
    return table


TABLE = build_table()


@dataclass(frozen=True)
class ForeignLines:
    """The lines of one side whose letters are mostly of another script than the side's own."""

    own: tuple[str, ...]  # the side's own scripts, the most frequent first
    lines: tuple[int, ...]  # from 0
    others: tuple[str, ...]  # the scripts of these lines, the most frequent first


def scripts_of(texts: Sequence[str]) -> Int64[np.ndarray, "n scripts"]:
    """Count the letters of each script in each text."""
    counts = np.zeros((len(texts), len(RANGES)), np.int64)
    for start in range(0, len(texts), CHUNK):
        chunk = texts[start : start + CHUNK]
        lengths = np.fromiter(map(len, chunk), np.int64, len(chunk))
        codes = np.frombuffer("".join(chunk).encode("utf-32-le", "surrogatepass"), "<u4")
        scripts = TABLE[codes]
        rows = np.repeat(np.arange(len(chunk)), lengths)
        letters = scripts > 0
        cells = rows[letters] * len(RANGES) + scripts[letters] - 1
        counts[start : start + len(chunk)] = np.bincount(cells, minlength=len(chunk) * len(RANGES)).reshape(
            len(chunk), -1
        )
    return counts


def find_foreign(texts: Sequence[str]) -> ForeignLines:
    """Find the texts whose letters are mostly of a script that the others are not written in."""
    counts = scripts_of(texts)
    totals = counts.sum(0)
    order = [int(i) for i in np.argsort(-totals, kind="stable") if totals[i]]
    own = [i for i in order if totals[i] >= MAIN * totals.sum()] or order[:1]
    letters, mine = counts.sum(1), counts[:, own].sum(1)
    lines = np.flatnonzero((letters >= LEAST) & (2 * mine < letters))
    theirs = counts[lines].sum(0)
    theirs[own] = 0
    others = [int(i) for i in np.argsort(-theirs, kind="stable") if theirs[i]]
    return ForeignLines(tuple(SCRIPTS[i] for i in own), tuple(lines.tolist()), tuple(SCRIPTS[i] for i in others))
