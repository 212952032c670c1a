"""From pieces to words: attention between subwords as attention between words.

Rows are the target's pieces, columns the source's. A word attends as its pieces do on average, and is attended to as
much as its pieces are together, as Clark et al. 2019 (arXiv:1906.04341) read BERT's.

h heads · n target pieces · m source pieces · i target words · j source words
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ArgumentError, ShapeError

__all__ = ["merge"]


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
    are as many words as the highest number says; one without a piece gets zeros.
    """
    if weights.dim() < 2:
        raise ShapeError(f"weights: [n, m] or a stack of such was expected, got {list(weights.shape)}")
    i, row_at, row_word = _words("rows", rows, weights.shape[-2])
    j, column_at, column_word = _words("columns", columns, weights.shape[-1])
    device, lead = weights.device, weights.shape[:-2]
    # Chosen and added by index, not by a product with zeros and ones: a NaN in a dropped piece stays out.
    kept = weights.index_select(-2, row_at.to(device)).index_select(-1, column_at.to(device))
    narrow = kept.new_zeros(*lead, kept.shape[-2], j).index_add(-1, column_word.to(device), kept)
    merged = kept.new_zeros(*lead, i, j).index_add(-2, row_word.to(device), narrow)
    merged = merged / torch.bincount(row_word, minlength=i).clamp(min=1).to(device, weights.dtype)[:, None]
    if renormalise:
        total = merged.sum(-1, keepdim=True)
        merged = merged / total.masked_fill(total == 0, 1.0)
    return merged


def _words(name: str, words: Sequence[int | None], pieces: int) -> tuple[int, Tensor, Tensor]:
    """How many words there are; which pieces belong to one; and to which."""
    if len(words) != pieces:
        raise ShapeError(f"{name}: {pieces} were expected, one for each piece, got {len(words)}")
    kept = [(piece, word) for piece, word in enumerate(words) if word is not None]
    wrong = [word for _, word in kept if word < 0]
    if wrong:
        raise ArgumentError(f"{name}: words are counted from 0, got {wrong[0]}")
    at, word = torch.tensor(kept, dtype=torch.long).reshape(-1, 2).unbind(-1)
    return int(word.max()) + 1 if kept else 0, at, word
