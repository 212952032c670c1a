"""Normalisation and pre-tokenization with the `tokenizers` library, and words that were added to a vocabulary.

The mark "▁" precedes the first piece of every word, as in SentencePiece (Kudo and Richardson 2018, arXiv:1808.06226).
"""

import json
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import tokenizers as library
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

MARK = "▁"
# The parts of words, after spaces have become marks. "<" is always a part of its own, with the mark before it, if any.
PARTS = rf"{MARK}?<|{MARK}?\p{{N}}|{MARK}?[\p{{L}}\p{{M}}]+|{MARK}?[^\p{{L}}\p{{M}}\p{{N}}{MARK}<]+|{MARK}"


def normalise(lowercase: bool) -> normalizers.Normalizer:
    """Build the normaliser: NFC, single spaces between words, none at the ends, and "_" in place of "▁" in the text."""
    first = [normalizers.Lowercase()] if lowercase else []
    spaces = [normalizers.Replace(MARK, "_"), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence([*first, normalizers.NFC(), *spaces])


def mark_words(cut: bool) -> pre_tokenizers.PreTokenizer:
    """Build a pre-tokenizer that turns spaces into marks and, with `cut`, splits words into parts."""
    if not cut:
        return pre_tokenizers.Metaspace(MARK, prepend_scheme="never", split=False)
    parts = pre_tokenizers.Split(Regex(PARTS), behavior="isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.Metaspace(MARK, prepend_scheme="always", split=True), parts])


def unmark_words(prepended: bool) -> decoders.Decoder:
    """Build a decoder that joins byte pieces and turns marks into spaces; `prepended`: drop the space at the start."""
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
    """Return the tokenizer.json content of a tokenizer without pieces."""
    shell = library.Tokenizer(models.BPE())
    shell.normalizer = normaliser
    if before is not None:
        shell.pre_tokenizer = before
    if after is not None:
        shell.decoder = after
    content: dict[str, Any] = json.loads(shell.to_str())
    return content


def separable(content: dict[str, Any]) -> bool:
    """Return whether words are split independently of each other: true for all kinds trained here but characters."""
    return (content.get("normalizer"), content.get("pre_tokenizer")) in separable_parts()


@cache
def separable_parts() -> list[tuple[Any, Any]]:
    """List the normalisers and pre-tokenizers, as in tokenizer.json, that treat each word on its own."""
    cuts = mark_words(cut=True), words()
    parts = [describe_parts(normalise(lowercase), before) for lowercase in (False, True) for before in cuts]
    return [(each["normalizer"], each["pre_tokenizer"]) for each in parts]


# ---- added words


class AddedWords:
    """Added words and their ids; they are found in texts where they stand alone, before a vocabulary's other pieces.

    A word is found after a space if no letter, digit or combining mark follows it: "Grüezi" in "Grüezi, Herr" but not
    in "Grüezimitenand". The text directly after it is split as before, but does not begin a word, so that decoding
    restores every text. The library's own added tokens cannot do this: the text after one always begins a word.
    """

    def __init__(self, ids: Mapping[str, int], cut: Callable[[str], list[int]] | None):
        """Take the ids of words; `cut` encodes the text directly after a word, and without it no text may follow."""
        self.ids, self.cut = dict(ids), cut
        self.longest = max(map(len, self.ids), default=0)

    def encode(self, text: str) -> list[int] | None:
        """Encode a normalised text without spaces that begins with an added word, the longest; None for other texts."""
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
    """Return the longest prefix of a text that consists of letters, digits, combining marks and "_"."""
    end = next((place for place, character in enumerate(text) if not is_inside(character)), len(text))
    return text[:end]


def is_inside(character: str) -> bool:
    """Return whether a character can be part of a word: a letter, a digit, a combining mark or "_"."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"
