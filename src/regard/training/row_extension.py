"""New rows in the tables of pieces: embeddings, output projection and its bias, for a vocabulary that has grown.

A new piece begins as the mean of the pieces that its text had before, in every table: the model reads and writes it
about as it did them. (Hewitt 2021, "Initializing new word embeddings for pretrained language models", begins with the
mean of all rows.) All other rows stay as they are, to the last bit.
"""

# v pieces before · w pieces after
from collections.abc import Mapping

import torch
from torch import Tensor

from regard.data import PAD, vocabulary_extension

NEVER = -1e4  # the output bias of a piece that is never written, as finite as half precision needs


@torch.no_grad()
def extend_rows(
    weights: Mapping[str, Tensor], tables: Mapping[str, vocabulary_extension.ExtendedSide]
) -> dict[str, Tensor]:
    """Return weights in which the named tables have a row for every piece of the extended side."""
    return {name: extend_table(tensor, tables[name]) if name in tables else tensor for name, tensor in weights.items()}


def extend_table(table: Tensor, side: vocabulary_extension.ExtendedSide) -> Tensor:
    """Return a table [v …] with the rows of new pieces, [w …]: a matrix, or a bias."""
    new = table.new_empty(side.after.size, *table.shape[1:])
    new[: len(table)] = table
    for i, pieces in side.pieces.items():
        new[i] = table[torch.tensor(pieces)].double().mean(0)
    if side.fillers:
        new[torch.tensor(side.fillers)] = table[PAD] if table.ndim > 1 else NEVER
    return new
