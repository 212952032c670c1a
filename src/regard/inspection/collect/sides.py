"""Sides: the sequences that look or are looked at, in pieces and in words."""

import itertools
from collections.abc import Sequence

from regard.data.tokenizer import END, START, Tokenizer
from regard.inspection.collect.exhibit import Side

__all__ = ["document_sides", "grid_side", "slots_side", "text_side"]


def text_side(
    tokenizer: Tokenizer, ids: Sequence[int], text: str | None = None, *, start: bool = False, end: bool = False
) -> Side:
    """A text's pieces, with START before or END behind them; words are those of `text`, where it is known.

    Of a text that was typed an unknown word can still be shown.
    """
    words, texts = split_words(tokenizer, ids, text)
    whole = [START] * start + list(ids) + [END] * end
    return Side(tuple(tokenizer.pieces(whole)), (None,) * start + words + (None,) * end, texts)


def split_words(
    tokenizer: Tokenizer, ids: Sequence[int], text: str | None = None
) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """The word of each piece, and the words."""
    words, texts = tuple(tokenizer.words(ids)), tokenizer.decode(ids).split()
    typed = [] if text is None else tokenizer.normalise(text).split()
    texts = typed if len(typed) == len(texts) else texts
    count = max((word for word in words if word is not None), default=-1) + 1
    return words, tuple(texts[:count]) + ("",) * (count - len(texts))


def document_sides(tokenizer: Tokenizer, row: Sequence[int], *, ends: bool) -> dict[str, Side]:
    """The pieces of an encoded document, with or without the END of each sentence; its sentences; and it, whole."""
    pieces, words, texts, belongs, sentences = list[str](), list[int | None](), list[str](), list[int](), list[str]()
    for number, (_, group) in enumerate(itertools.groupby(number_sentences(row), key=lambda pair: pair[0])):
        ids = [token for _, token in group]
        own, sentence = split_words(tokenizer, ids[:-1])
        shown = ids if ends else ids[:-1]
        pieces += tokenizer.pieces(shown)
        words += [None if word is None else word + len(texts) for word in own] + [None] * ends
        texts += sentence
        belongs += [number] * len(shown)
        sentences.append(" ".join(sentence))
    places = tuple(range(len(sentences)))
    return {
        "source": Side(tuple(pieces), tuple(words), tuple(texts), sentences=tuple(belongs)),
        "sentences": Side(tuple(sentences), places, tuple(sentences), sentences=places),
        "document": Side(("document",), (0,), ("document",)),
    }


def number_sentences(row: Sequence[int]) -> list[tuple[int, int]]:
    """Each token with the number of its sentence; a sentence ends with its END."""
    before = itertools.accumulate((token == END for token in row), initial=0)
    return [(int(number), token) for number, token in zip(before, row, strict=False)]


def grid_side(grid: tuple[int, int]) -> Side:
    """The places of a grid, row by row, each named by its row and column from 1."""
    names = tuple(f"{y + 1},{x + 1}" for y in range(grid[0]) for x in range(grid[1]))
    return Side(names, tuple(range(len(names))), names, grid)


def slots_side(count: int) -> Side:
    """The places of a memory, from 0 as in the paper."""
    names = tuple(map(str, range(count)))
    return Side(names, tuple(range(count)), names)
