"""Coverage: source words that an output seems to leave out, as hardly any of its attention went to them.

A word's attention is what fell on its pieces, summed over the pieces of the output. Of an output's marks and of its end
nothing is counted: they look about, and often at words that nobody translated. It is read where links are read
(`AlignmentSettings`): of one head where one was chosen, else it is the median over the heads of that layer, which one
head that looks at everything does not move, as it moves their mean.
"""

# b pairs · h heads · n target pieces, r = n + 1 rows · m source pieces, k ≥ m columns · i target words · j source words
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data import Tokenizer, Tokenizers
from regard.decoding import check_finite
from regard.inspection.alignments.extraction import Pair, count_words, merge_batch, watch_batches
from regard.inspection.alignments.settings import AlignmentSettings
from regard.models import Model

LEAST = 0.2  # attention, summed over an output, of a word that was translated
ROW = 3  # words in a row that are reported: one or two are often said by the words around them
SPELLED = 1.2  # letters of a word at most, in the mean, where words are single letters
LETTER = re.compile(r"\w")
Spans = tuple[tuple[int, int], ...]  # of words: the first, and the one behind the last


@dataclass(frozen=True, eq=False)
class WordAttention:
    """How much each target word of a pair looked at each source word, and how much each source word received."""

    weights: Float[Tensor, "i j"]
    received: Float[Tensor, " j"]


def untranslated_spans(words: Sequence[str], received: Sequence[float], tags: Sequence[str] = ()) -> Spans:
    """Return where three or more words in a row received too little; marks alone and tags count for nothing.

    A text that is spelled, letter by letter, has no words: of "t h r o u g h" hardly anything is heard.
    """
    letters = {number: len(LETTER.findall(word)) for number, word in enumerate(words) if word not in tags}
    counted = [number for number, count in letters.items() if count]
    if sum(letters.values()) <= SPELLED * len(counted):
        return ()
    spans, row = list[tuple[int, int]](), list[int]()
    for number in counted:
        if number < len(received) and received[number] >= LEAST:
            spans, row = add_row(spans, row), []
        else:
            row.append(number)
    return tuple(add_row(spans, row))


def add_row(spans: list[tuple[int, int]], row: Sequence[int]) -> list[tuple[int, int]]:
    """Add a row of words to the spans, where it is long enough."""
    return [*spans, (row[0], row[-1] + 1)] if len(row) >= ROW else spans


def content_rows(tokenizer: Tokenizer, ids: Sequence[int], width: int, offset: int) -> list[bool]:
    """Tell which of `width` rows of a crossing belong to pieces with a letter or a number, by the offset of rows."""
    flags = [bool(LETTER.search(piece)) for piece in tokenizer.pieces(list(ids))]
    flags = [False, *flags] if offset else flags
    return [*flags, *[False] * (width - len(flags))][:width]


def sum_received(
    weights: Float[Tensor, "b h r k"], rows: Bool[Tensor, "b r"], columns: Int[Tensor, "b m"], words: int
) -> Float[Tensor, "b j"]:
    """Sum what `rows` gave to the pieces of each source word, as the median over the heads; -1 is of no word."""
    b, h, _, _ = weights.shape
    # By index and not by a product: a NaN in a row that does not count stays out.
    summed = torch.where(rows[:, None, :, None], weights, 0.0).sum(2)[..., : columns.shape[1]]
    at = torch.where(columns < 0, words, columns)[:, None].expand(b, h, -1)
    received = weights.new_zeros(b, h, words + 1).scatter_add(-1, at, summed)[..., :words].sort(1).values
    return (received[:, (h - 1) // 2] + received[:, h // 2]) / 2


@torch.no_grad()
def word_attention(
    model: Model, tokenizers: Tokenizers, pairs: Sequence[Pair], settings: AlignmentSettings
) -> list[WordAttention]:
    """Return the attention between the words of pairs of token sequences, read in one teacher-forced pass."""
    result = [WordAttention(torch.empty(0, 0), torch.empty(0))] * len(pairs)
    for part in watch_batches(model, tokenizers, pairs, only=[settings.view]):
        crossing = part.crossing(settings.view, settings.head)
        counts = part.target_words, part.source_words
        weights = merge_batch(crossing, part.rows(settings.offset), part.source, counts)[:, 0]
        check_finite(model, weights, impossible=False)
        heads = part.weights(settings.view) if settings.head is None else crossing
        targets = [pairs[number][1] for number in part.pairs]
        rows = [content_rows(tokenizers.target, ids, heads.shape[2], settings.offset) for ids in targets]
        received = sum_received(heads, torch.tensor(rows, device=heads.device), part.source, part.source_words)
        for number, one, two in zip(part.pairs, weights.cpu(), received.cpu(), strict=True):
            source, target = pairs[number]
            size = count_words(tokenizers.source.words, source)
            result[number] = WordAttention(one[: count_words(tokenizers.target.words, target), :size], two[:size])
    return result
