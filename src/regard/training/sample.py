"""A translation beside its reference, and where the two differ."""

import bisect
import difflib
import itertools
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

MISSING = "‸"
ALIKE = 0.6  # of one word's letters and another's, above which their letters are compared: not of two labels
# Unbalanced, these turn the rest of a line around; they carry no text of their own.
TURNS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


class Sample(NamedTuple):
    """One held-out example: what was read, what was expected, and what the model wrote."""

    source: str
    reference: str
    output: str
    label: bool = False  # the output is one of a few labels: it is right or wrong as a whole

    def map(self, change: Callable[[str], str]) -> "Sample":
        """Return the sample with each of its texts changed."""
        return Sample(change(self.source), change(self.reference), change(self.output), self.label)

    def record(self) -> dict[str, Any]:
        """Return the sample as records hold it."""
        texts = {"source": self.source, "reference": self.reference, "output": self.output}
        return {**texts, "label": True} if self.label else texts

    @property
    def pieces(self) -> list[tuple[str, bool]]:
        """Split the output into pieces, each with whether the reference differs there."""
        return [(self.output, self.output != self.reference)] if self.label else differing(self.output, self.reference)


def differing(output: str, reference: str) -> list[tuple[str, bool]]:
    """Split the output into pieces, each with whether the reference differs there.

    A piece that is empty and differs stands where words of the reference are missing. Words are compared; where neither
    text has a space and most of their letters are the same, as in Chinese or in a date, letters are. White space counts
    as one space.
    """
    ours, theirs = output.split(), reference.split()
    gap = " "
    if len(ours) <= 1 and len(theirs) <= 1:
        each = letters("".join(ours)), letters("".join(theirs))
        if difflib.SequenceMatcher(None, *each, autojunk=False).ratio() > ALIKE:
            ours, theirs, gap = *each, ""
    pieces: list[tuple[str, bool]] = []
    for kind, i, j, _, _ in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if pieces and gap:
            pieces.append((gap, False))
        pieces.append((gap.join(ours[i:j]), kind != "equal"))
    return pieces


def bracketed(output: str, reference: str, label: bool = False) -> str:
    """Format the output as plain text, with differences in [brackets] and gaps as ‸."""
    pieces = Sample("", reference, output, label).pieces
    return "".join(f"[{text}]" if differs and text else text or MISSING for text, differs in pieces)


def nearest(output: str, references: Sequence[str]) -> str:
    """Return the reference that an output has most in common with, by words; the first of those alike."""

    def likeness(reference: str) -> float:
        return difflib.SequenceMatcher(None, output.split(), reference.split(), autojunk=False).ratio()

    return max(references, key=likeness)


def clip(text: str, width: int) -> str:
    """Cut a line where a screen of this width ends; letters of Chinese, Japanese and Korean take two columns."""
    ends = list(itertools.accumulate(map(columns_of, text)))
    if not ends or ends[-1] <= width:
        return text
    return f"{text[: bisect.bisect_right(ends, width - 2)].rstrip()} …"


def columns_of(letter: str) -> int:
    """Return how many columns of a screen a letter takes."""
    return 0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def letters(word: str) -> list[str]:
    """Split a word into letters, each with the marks that combine with it."""
    clusters: list[str] = []
    for letter in word:
        if clusters and (unicodedata.combining(letter) or letter in "\u200d\ufe0f" or clusters[-1].endswith("\u200d")):
            clusters[-1] += letter
        else:
            clusters.append(letter)
    return clusters


def legible(text: str) -> str:
    """Put text on one line, without characters that could control a terminal."""
    text = " ".join(text.split())
    return "".join(
        "�" if unicodedata.category(letter) == "Cc" else letter for letter in text if ord(letter) not in TURNS
    )
