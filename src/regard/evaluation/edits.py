"""Edit distance, and the error rates of characters and tokens that are made of it.

For speech and grapheme-to-phoneme conversion: the token error rate of phonemes is the phoneme error rate (PER), and the
share of words that are none of their pronunciations, the word error rate (WER), is one minus exact match.
"""

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np

from regard.evaluation.metric import Measured, Reference, Score, alternatives, signature_of
from regard.evaluation.text import plain

__all__ = ["distance", "error_rate", "measure_errors"]

Of = Literal["character", "token"]


def distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and substitutions that make one sequence the other (Levenshtein 1966).

    Myers 1999 in the form of Hyyrö 2003: a column of the table of distances is held as two numbers whose bits say where
    the distance rises and falls by one from row to row, so that a column costs a few operations, whatever its height.
    """
    low, high, top = 0, len(one), len(other)
    while low < high and low < top and one[low] == other[low]:
        low += 1
    while low < high and low < top and one[high - 1] == other[top - 1]:
        high, top = high - 1, top - 1
    height = high - low
    if not height or low == top:
        return height + top - low

    where: dict[Hashable, int] = {}  # the rows that each symbol stands in
    for row in range(height):
        symbol = one[low + row]
        where[symbol] = where.get(symbol, 0) | 1 << row
    every, last = (1 << height) - 1, 1 << (height - 1)
    rises, falls, found = every, 0, height  # down the column; found: in its last row
    for column in range(low, top):
        same = where.get(other[column], 0)
        kept = (((same & rises) + rises) ^ rises) | same | falls  # no more than diagonally above
        more, less = (falls | ~(kept | rises)) & every, kept & rises  # than to the left
        if more & last:
            found += 1
        elif less & last:
            found -= 1
        more, less = (more << 1) | 1, less << 1
        rises, falls = (less | ~(kept | more)) & every, more & kept & every
    return found


def error_rate(
    outputs: Sequence[str], references: Sequence[Reference], unit: Of = "token", *, lowercase: bool = False
) -> Score:
    """Edits over the length of the references, of characters or tokens, over the whole corpus: 0 is best."""
    return measure_errors(outputs, references, unit, lowercase=lowercase).score()


def measure_errors(
    outputs: Sequence[str], references: Sequence[Reference], unit: Of = "token", *, lowercase: bool = False
) -> Measured:
    """The edits to the nearest reference and its length, sentence by sentence.

    Tokens stand between white space. The nearest reference takes the fewest edits, and is the longest of those.
    """
    rows = np.zeros((len(outputs), 2))
    for i, (output, given) in enumerate(zip(outputs, alternatives(references), strict=True)):
        text = plain(output, lowercase)
        ours = text.split() if unit == "token" else text
        nearest: list[tuple[int, int]] = []
        for each in given:
            text = plain(each, lowercase)
            theirs = text.split() if unit == "token" else text
            nearest.append((distance(ours, theirs), -len(theirs)))
        edits, length = min(nearest)
        rows[i] = edits, -length
    signature = signature_of(references, case="lc" if lowercase else "mixed", unit=unit)
    return Measured(f"{unit} error rate", rows, _rate, signature, "share", higher=False)


def _rate(sums: list[float]) -> float:
    edits, length = sums
    return edits / length if length else float(edits > 0)
