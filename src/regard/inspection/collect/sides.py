"""Sides: the sequences that look or are looked at, in pieces and in words."""

# h heads · n target pieces · m source pieces · i target words · j source words
import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.tokenizer import END, START, UNKNOWN, Tokenizer
from regard.errors import ArgumentError, ShapeError
from regard.inspection.collect.exhibit import Side

__all__ = ["document_sides", "grid_side", "merge", "slots_side", "text_side"]


def text_side(
    tokenizer: Tokenizer, ids: Sequence[int], text: str | None = None, *, start: bool = False, end: bool = False
) -> Side:
    """Make the side of a text's pieces, with START before or END after them; words are those of `text`, if known.

    Of a text that was typed an unknown word can still be shown.
    """
    words, texts = split_words(tokenizer, ids, text)
    whole = [START] * start + list(ids) + [END] * end
    numbered, unknown = (None,) * start + words + (None,) * end, unknown_of(ids, words)
    return Side(tuple(tokenizer.pieces(whole)), numbered, texts, unknown=unknown)


def unknown_of(ids: Sequence[int], words: Sequence[int | None]) -> tuple[int, ...]:
    """Find the words that have an unknown piece."""
    pairs = zip(ids, words, strict=True)
    return tuple(sorted({word for token, word in pairs if token == UNKNOWN and word is not None}))


def split_words(
    tokenizer: Tokenizer, ids: Sequence[int], text: str | None = None
) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """Return the word of each piece, and the words."""
    words, texts = tuple(tokenizer.words(ids)), tokenizer.decode(ids).split()
    typed = [] if text is None else tokenizer.normalise(text).split()
    texts = typed if len(typed) == len(texts) else texts
    count = max((word for word in words if word is not None), default=-1) + 1
    return words, tuple(texts[:count]) + ("",) * (count - len(texts))


def document_sides(
    tokenizer: Tokenizer, row: Sequence[int], typed: Sequence[str] = (), *, ends: bool
) -> dict[str, Side]:
    """Make the sides of an encoded document: its pieces, with or without END; its sentences; and the whole.

    `typed` are its sentences as they were written, of which unknown words are shown.
    """
    pieces, words, texts, belongs, unknown = list[str](), list[int | None](), list[str](), list[int](), list[int]()
    lengths = list[int]()  # of the sentences, in words
    for number, (_, group) in enumerate(itertools.groupby(number_sentences(row), key=lambda pair: pair[0])):
        ids = [token for _, token in group]
        own, sentence = split_words(tokenizer, ids[:-1])
        visible = ids if ends else ids[:-1]
        pieces += tokenizer.pieces(visible)
        words += [None if word is None else word + len(texts) for word in own] + [None] * ends
        unknown += [word + len(texts) for word in unknown_of(ids[:-1], own)]
        texts += sentence
        belongs += [number] * len(visible)
        lengths.append(len(sentence))
    texts = restore_words(texts, unknown, [word for text in typed for word in tokenizer.normalise(text).split()])
    starts = itertools.accumulate(lengths, initial=0)
    sentences = [" ".join(texts[start : start + length]) for start, length in zip(starts, lengths, strict=False)]
    numbers = tuple(range(len(sentences)))
    return {
        "source": Side(tuple(pieces), tuple(words), tuple(texts), sentences=tuple(belongs), unknown=tuple(unknown)),
        "sentences": Side(tuple(sentences), numbers, tuple(sentences), sentences=numbers),
        "document": Side(("document",), (0,), ("document",)),
    }


def restore_words(texts: Sequence[str], unknown: Sequence[int], typed: Sequence[str]) -> list[str]:
    """Restore the unknown words of a document as they were typed, if the other words agree.

    A document may have been cut, and end before what was typed.
    """
    strange = set(unknown)
    agree = len(texts) <= len(typed) and all(
        word == other for place, (word, other) in enumerate(zip(texts, typed, strict=False)) if place not in strange
    )
    return [typed[place] if place in strange else word for place, word in enumerate(texts)] if agree else list(texts)


def number_sentences(row: Sequence[int]) -> list[tuple[int, int]]:
    """Number each token by its sentence; a sentence ends with its END."""
    before = itertools.accumulate((token == END for token in row), initial=0)
    return [(int(number), token) for number, token in zip(before, row, strict=False)]


def grid_side(grid: tuple[int, int]) -> Side:
    """Make the side of a grid's places, row by row, each named by its row and column from 1."""
    names = tuple(f"{y + 1},{x + 1}" for y in range(grid[0]) for x in range(grid[1]))
    return Side(names, tuple(range(len(names))), names, grid)


def slots_side(count: int) -> Side:
    """Make the side of a memory's places, named by their numbers from 1."""
    names = tuple(map(str, range(1, count + 1)))
    return Side(names, tuple(range(count)), names)


def merge(
    weights: Float[Tensor, "*h n m"],
    rows: Sequence[int | None],
    columns: Sequence[int | None],
    *,
    renormalise: bool = False,
) -> Float[Tensor, "*h i j"]:
    """Merge weights between pieces to weights between words: summed over source pieces, averaged over target pieces.

    `rows` gives the word of each target piece and `columns` that of each source piece, counted from 0, as `word_ids` of
    tokenizers does. None is a piece of no word (END, a tag): its row or its column is dropped. Rows that sum to one
    still do, less what was dropped with the columns; `renormalise` divides by what is left, where anything is. There
    are as many words as the highest number says; one without a piece gets zeros. So Clark et al. 2019
    (arXiv:1906.04341) read BERT's attention.
    """
    if weights.dim() < 2:
        raise ShapeError(f"weights: [n, m] or a stack of such was expected, got {list(weights.shape)}")
    i, row_at, row_word = _words("rows", rows, weights.shape[-2])
    j, column_at, column_word = _words("columns", columns, weights.shape[-1])
    device, lead = weights.device, weights.shape[:-2]
    # Chosen and added by index, not by a product with zeros and ones: a NaN in a dropped piece stays out.
    selected = weights.index_select(-2, row_at.to(device)).index_select(-1, column_at.to(device))
    narrow = selected.new_zeros(*lead, selected.shape[-2], j).index_add(-1, column_word.to(device), selected)
    merged = selected.new_zeros(*lead, i, j).index_add(-2, row_word.to(device), narrow)
    merged = merged / torch.bincount(row_word, minlength=i).clamp(min=1).to(device, weights.dtype)[:, None]
    if renormalise:
        total = merged.sum(-1, keepdim=True)
        merged = merged / total.masked_fill(total == 0, 1.0)
    return merged


def _words(name: str, words: Sequence[int | None], pieces: int) -> tuple[int, Tensor, Tensor]:
    """Return how many words there are; which pieces belong to one; and to which."""
    if len(words) != pieces:
        raise ShapeError(f"{name}: {pieces} were expected, one for each piece, got {len(words)}")
    pairs = [(piece, word) for piece, word in enumerate(words) if word is not None]
    wrong = [word for _, word in pairs if word < 0]
    if wrong:
        raise ArgumentError(f"{name}: words are counted from 0, got {wrong[0]}")
    at, word = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).unbind(-1)
    return int(word.max()) + 1 if pairs else 0, at, word
