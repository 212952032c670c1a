"""Normalisation and pre-tokenization: how text is cut before a vocabulary meets it, as the `tokenizers` library runs
it.

The mark "▁" stands before the first piece of every word, as in SentencePiece (Kudo and Richardson 2018,
arXiv:1808.06226).
"""

import json
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


def separable(content: dict[str, Any]) -> bool:
    """Return whether words are split into pieces independently: true of all tokenizers made here but characters."""
    parts = content.get("normalizer"), content.get("pre_tokenizer")
    return any(parts == own for own in separable_parts())


@cache
def separable_parts() -> list[tuple[Any, Any]]:
    """List the normalisers and splits made here that never look across a space, as in tokenizer.json."""
    parts, shell = [], library.Tokenizer(models.BPE())
    for lowercase in (False, True):
        for before in (mark_words(cut=True), words()):
            shell.normalizer, shell.pre_tokenizer = normalise(lowercase), before
            content = json.loads(shell.to_str())
            parts.append((content["normalizer"], content["pre_tokenizer"]))
    return parts
