"""Sides as they are drawn: marks and special tokens as words, grids, slots; documents as a classifier weighed them."""

# h heads · n target pieces · m source pieces · i target words · j source words
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.alignment import extraction
from regard.data import BYTE_MARK, MARK, DataSettings, Splitter, Tokenizer, document_texts
from regard.decoding import documents_of
from regard.errors import ArgumentError, ShapeError
from regard.models import Model
from regard.tasks import Side


def separate_marks(side: Side) -> Side:
    """Make punctuation words of their own, where it stands at the beginning or the end of a word.

    So it is drawn: the weight of a full stop is not that of the word before it. Pieces inside a word stay, such as the
    apostrophe of "don't". Links and trees count the words of the text, as `side` has them.
    """
    if side.grid is not None or all(word is None for word in side.words):
        return side
    last = max(word for word in side.words if word is not None)
    owned: list[list[int]] = [[] for _ in range(last + 1)]
    for piece, word in enumerate(side.words):
        if word is not None:
            owned[word].append(piece)
    words, texts, unknown = list(side.words), list[str](), list[int]()
    for word, pieces in enumerate(owned):
        text = side.texts[word] if word < len(side.texts) else ""
        bare = (side.pieces[piece].lstrip(MARK + BYTE_MARK).removeprefix("##") for piece in pieces)
        bare = (piece.removesuffix("@@").removesuffix("</w>") for piece in bare)  # marks of where words begin and end
        for part, own in split_marks(text, list(zip(pieces, bare, strict=True))):
            for piece in own:
                words[piece] = len(texts)
            # Of a word with an unknown piece, that is the part with letters.
            if word in side.unknown and (len(own) == len(pieces) or not is_mark(part)):
                unknown.append(len(texts))
            texts.append(part)
    return replace(side, words=tuple(words), texts=tuple(texts), unknown=tuple(unknown))


def count_specials(side: Side) -> Side:
    """Make START, END and the like words of their own, where they stand."""
    if None not in side.words:
        return side
    words, texts, place = list[int | None](), list[str](), dict[int, int]()
    for piece, word in zip(side.pieces, side.words, strict=True):
        if word is None:
            words.append(len(texts))
            texts.append(piece)
            continue
        for each in range(len(place), word + 1):
            place[each] = len(texts)
            texts.append(side.texts[each] if each < len(side.texts) else "")
        words.append(place[word])
    return replace(side, words=tuple(words), texts=tuple(texts), unknown=tuple(place[word] for word in side.unknown))


def split_marks(text: str, pieces: Sequence[tuple[int, str]]) -> list[tuple[str, list[int]]]:
    """Split a word into the punctuation before it, the word and the punctuation after it, each with its pieces."""
    inside = [at for at, (_, bare) in enumerate(pieces) if bare and not is_mark(bare)]
    whole = [(text, [piece for piece, _ in pieces])]
    if not inside:
        return whole
    first, end = inside[0], inside[-1] + 1
    while first and not pieces[first - 1][1]:  # the mark of the word's start alone goes with what follows it
        first -= 1
    before, after = ("".join(bare for _, bare in some) for some in (pieces[:first], pieces[end:]))
    middle = text[len(before) : len(text) - len(after)]
    if not middle or text != before + middle + after:
        return whole
    parts = [(before, pieces[:first]), (middle, pieces[first:end]), (after, pieces[end:])]
    return [(part, [piece for piece, _ in own]) for part, own in parts if part]


def is_mark(text: str) -> bool:
    """Return whether a text is punctuation alone."""
    return all(unicodedata.category(letter).startswith("P") for letter in text)


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
) -> Float[Tensor, "*h i j"]:
    """Merge weights between pieces to weights between words, as `merge_batch` of alignments does.

    `rows` gives the word of each target piece and `columns` that of each source piece, counted from 0, as `word_ids` of
    tokenizers does; None is a piece of no word. There are as many words as the highest number says; one without a piece
    gets zeros.
    """
    if weights.dim() < 2:
        raise ShapeError(f"weights: [n, m] or a stack of such was expected, got {list(weights.shape)}")
    for name, words, pieces in zip(("rows", "columns"), (rows, columns), weights.shape[-2:], strict=True):
        if len(words) != pieces:
            raise ShapeError(f"{name}: {pieces} were expected, one for each piece, got {len(words)}")
        wrong = [word for word in words if word is not None and word < 0]
        if wrong:
            raise ArgumentError(f"{name}: words are counted from 0, got {wrong[0]}")
    (down, i), (across, j) = (extraction.word_ids([words], weights.device) for words in (rows, columns))
    stack = weights.reshape(1, math.prod(weights.shape[:-2]), *weights.shape[-2:])
    return extraction.merge_batch(stack, down, across, (i, j)).reshape(*weights.shape[:-2], i, j)


@dataclass(frozen=True)
class WeighedSentence:
    """A sentence, its weight in the document, and the weights of its words; both sum to one."""

    words: list[str]
    weights: list[float]
    weight: float

    @property
    def counts(self) -> list[float]:
        """Return the share of each word in the document; over all sentences they sum to one."""
        return [self.weight * weight for weight in self.weights]


def weigh(
    model: Model, tokenizer: Tokenizer, data: DataSettings, texts: Sequence[str], splitter: Splitter | None = None
) -> list[list[WeighedSentence]]:
    """Return the sentences of each text with the weights of a `han` model; a text without words has none.

    A word's weight is that of its pieces together. Texts are read one by one, as they may be of any length.
    """
    rows, _ = document_texts.encode_documents(texts, tokenizer, data, document_texts.splitter_of(data, splitter))
    device = next(model.parameters()).device
    result = list[list[WeighedSentence]]()
    for row in rows:
        documents = documents_of([row], device)
        words, sentences = model.weigh_documents(documents) if row else (torch.zeros(0, 0), torch.zeros(1, 0))
        result.append([])
        for number, length in enumerate(documents.words.lengths.tolist()):
            ids = documents.words.ids[number, :length].tolist()
            written = tokenizer.decode(ids).split()
            summed = [0.0] * len(written)
            for place, weight in zip(tokenizer.words(ids), words[number].tolist(), strict=False):
                if place is not None and place < len(written):
                    summed[place] += weight
            result[-1].append(WeighedSentence(written, summed, float(sentences[0, number])))
    return result
