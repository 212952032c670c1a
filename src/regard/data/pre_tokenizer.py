"""Normalisation and pre-tokenization: how text is cut before a vocabulary meets it, as the `tokenizers` library runs
it; and words that were added to the vocabulary.

The mark "▁" stands before the first piece of every word, as in SentencePiece (Kudo and Richardson 2018,
arXiv:1808.06226).
"""

import json
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import tokenizers as library
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

MARK = "▁"
# Words are cut here, after spaces became marks. Nothing is ever joined with "<" but the mark before it.
PARTS = rf"{MARK}?<|{MARK}?\p{{N}}|{MARK}?[\p{{L}}\p{{M}}]+|{MARK}?[^\p{{L}}\p{{M}}\p{{N}}{MARK}<]+|{MARK}"


def normalise(lowercase: bool) -> normalizers.Normalizer:
    """Build the normaliser: NFC, one space between words, none around them; the mark of a word's start is not text."""
    first = [normalizers.Lowercase()] if lowercase else []
    spaces = [normalizers.Replace(MARK, "_"), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence([*first, normalizers.NFC(), *spaces])


def mark_words(cut: bool) -> pre_tokenizers.PreTokenizer:
    """Turn spaces into marks at the words' starts and, with `cut`, split words into parts."""
    if not cut:
        return pre_tokenizers.Metaspace(MARK, prepend_scheme="never", split=False)
    parts = pre_tokenizers.Split(Regex(PARTS), behavior="isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.Metaspace(MARK, prepend_scheme="always", split=True), parts])


def unmark_words(prepended: bool) -> decoders.Decoder:
    """Turn bytes back into characters and marks into spaces, without the space that was added at the start."""
    strip = [decoders.Strip(" ", 1, 0)] if prepended else []
    return decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])


def words() -> pre_tokenizers.PreTokenizer:
    """Build a pre-tokenizer that splits at spaces."""
    return pre_tokenizers.Split(" ", behavior="removed")


def describe_parts(
    normaliser: normalizers.Normalizer,
    before: pre_tokenizers.PreTokenizer | None,
    after: decoders.Decoder | None = None,
) -> dict[str, Any]:
    """Describe a tokenizer that has no pieces yet, as tokenizer.json does."""
    shell = library.Tokenizer(models.BPE())
    shell.normalizer = normaliser
    if before is not None:
        shell.pre_tokenizer = before
    if after is not None:
        shell.decoder = after
    content: dict[str, Any] = json.loads(shell.to_str())
    return content


def separable(content: dict[str, Any]) -> bool:
    """Return whether words are split into pieces independently: true of all tokenizers made here but characters."""
    return (content.get("normalizer"), content.get("pre_tokenizer")) in separable_parts()


@cache
def separable_parts() -> list[tuple[Any, Any]]:
    """List the normalisers and splits made here that never look across a space, as in tokenizer.json."""
    cuts = mark_words(cut=True), words()
    parts = [describe_parts(normalise(lowercase), before) for lowercase in (False, True) for before in cuts]
    return [(each["normalizer"], each["pre_tokenizer"]) for each in parts]


# ---- words that were added


class AddedWords:
    """Words and their ids, found in running text where they stand alone, before a vocabulary's other pieces.

    A word is found at the beginning of what stands between two spaces, if no letter, digit or mark follows it: "Grüezi"
    in "Grüezi, Herr" and not in "Grüezimitenand". What follows is cut as before, but begins no word, so that every text
    comes back as it was. The library's own added tokens could not do so: what follows one of them always begins a word.
    """

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
