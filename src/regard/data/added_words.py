"""Words that were added to a vocabulary: found in running text where they stand alone, before its other pieces.

A word is found at the beginning of what stands between two spaces, if no letter, digit or mark follows it: "Grüezi" in
"Grüezi, Herr" and not in "Grüezimitenand". What follows is cut as before, but begins no word, so that every text comes
back as it was. The library's own added tokens could not do so: what follows one of them always begins a word.
"""

import unicodedata
from collections.abc import Callable, Mapping


class AddedWords:
    """Words and their ids."""

    def __init__(self, ids: Mapping[str, int], cut: Callable[[str], list[int]] | None):
        """Take the ids of words, and how to cut what follows one; without `cut`, nothing may follow."""
        self.ids, self.cut = dict(ids), cut
        self.longest = max(map(len, self.ids), default=0)

    def encode(self, text: str) -> list[int] | None:
        """Encode a normalised text without spaces that begins with a word, the longest; None for any other text."""
        if " " in text:
            return None
        i = self.ids.get(text)
        if i is not None:
            return [i]
        if self.cut is None:
            return None
        for end in range(min(self.longest, len(text) - 1), 0, -1):
            i = self.ids.get(text[:end])
            if i is not None and not is_inside(text[end]):
                return [i, *self.cut(text[end:])]
        return None


def leading_word(text: str) -> str:
    """Return the letters, digits and marks that a text begins with."""
    end = next((place for place, character in enumerate(text) if not is_inside(character)), len(text))
    return text[:end]


def is_inside(character: str) -> bool:
    """Return whether a character can stand inside of a word: a letter, a digit, a mark on one of them, or "_"."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"
