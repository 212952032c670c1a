"""Sentences of token numbers as one padded tensor."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch

from regard.data.tokenizer import PAD
from regard.models.contract import Tokens

__all__ = ["tokens_of"]


def tokens_of(rows: Sequence[Sequence[int]], device: torch.device | str = "cpu", fill: int = PAD) -> Tokens:
    """Sentences of token numbers as a padded batch: all in one piece, as there may be thousands."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    width = max(1, int(lengths.max(initial=0)))
    ids = np.full((len(rows), width), fill, np.int64)
    there = np.arange(width) < lengths[:, None]
    ids[there] = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
    return Tokens.of(torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device))
