"""Token numbers as the tensors that models read: sentences, texts, documents."""

# n rows · t tokens of all
from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from jaxtyping import Int, Int64

from regard.data import END, PAD
from regard.models import Documents, Tokens

Row = Sequence[int] | Int[np.ndarray, " _"]


def tokens_of(rows: Sequence[Sequence[int]], device: torch.device | str = "cpu", fill: int = PAD) -> Tokens:
    """Pad sentences of token numbers to a batch, all at once, as there may be thousands."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    flat = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
    return pad_rows(flat, lengths, device, fill)


def source_of(rows: Sequence[Row], reads: str) -> Tokens | Documents:
    """Convert encoded documents to the form that a model reads: sentences of documents, or a row for each."""
    return documents_of(rows) if reads == "documents" else pad_rows(*join_rows(rows), "cpu")


def documents_of(rows: Sequence[Row], device: torch.device | str = "cpu") -> Documents:
    """Convert encoded documents to a sentence per row."""
    flat, lengths = join_rows(rows)
    ends = np.flatnonzero(flat == END)
    sentences = np.diff(np.searchsorted(ends, np.cumsum(lengths)), prepend=0)
    words = pad_rows(flat[flat != END], np.diff(ends, prepend=-1) - 1, device)
    return Documents(words, torch.from_numpy(sentences).to(device))


def join_rows(rows: Sequence[Row]) -> tuple[Int64[np.ndarray, " t"], Int64[np.ndarray, " n"]]:
    """Join the tokens of all rows, and count those of each."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.concatenate([np.zeros(0, np.int64), *(np.asarray(row, np.int64) for row in rows)]), lengths


def pad_rows(
    flat: Int64[np.ndarray, " t"], lengths: Int64[np.ndarray, " n"], device: torch.device | str, fill: int = PAD
) -> Tokens:
    """Pad rows that lie one after the other to a rectangle."""
    ids = np.full((len(lengths), max(1, int(lengths.max(initial=0)))), fill, np.int64)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = flat
    return Tokens.of(torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device))
