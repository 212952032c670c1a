"""Many documents, or pictures: those of like length read together, the labels' scores in the order given."""

# n documents · b documents of a batch · v labels
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from regard.data.tokenizer import END, PAD
from regard.decoding.finite import check_finite
from regard.models.contract import Documents, Model, Pictures, Source, Tokens

__all__ = ["BUDGET", "documents_of", "flat_of", "label_in_batches", "label_pictures", "source_of"]

BUDGET = 16_384  # tokens of a batch
PICTURES = 64  # of a batch
Row = Sequence[int] | Int[np.ndarray, " _"]


def label_in_batches(
    model: Model,
    rows: Sequence[Sequence[int]],
    reads: str,
    device: torch.device | str = "cpu",
    budget: int = BUDGET,
) -> Float[Tensor, "n v"]:
    """The log-probability of every label, for documents as `encode_documents` makes them.

    `reads` is what the model's kind reads: documents, sentence by sentence, or text, whole.
    """
    found: list[Tensor] = []
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    done = 0
    while done < len(order):
        count = max(1, budget // (len(rows[order[done]]) + 1))
        batch = source_of([rows[i] for i in order[done : done + count]], reads).to(device)
        found.append(log_probabilities(model, batch).cpu())
        done += count
    if not found:
        return torch.zeros(0, model.readout.out_features)
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(found)[back]


def label_pictures(
    model: Model, pixels: Iterable[np.ndarray | Tensor], device: torch.device | str = "cpu", rows: int = PICTURES
) -> Float[Tensor, "n v"]:
    """The same for pictures of one size, one [3 h w] after the other; `rows` of them are held at a time."""
    found, each = [torch.zeros(0, model.readout.out_features)], iter(pixels)
    while chunk := list(itertools.islice(each, rows)):
        batch = torch.stack([torch.as_tensor(one) for one in chunk])
        found.append(log_probabilities(model, Pictures(batch.to(device))).cpu())
    return torch.cat(found)


@torch.no_grad()
def log_probabilities(model: Model, source: Source) -> Float[Tensor, "b v"]:
    """The log-probability of every label."""
    scores = model.classify(model.encode(source))
    check_finite(model, scores, impossible=False)
    return (scores if scores.dtype == torch.float64 else scores.float()).log_softmax(-1)


def source_of(rows: Sequence[Row], reads: str) -> Tokens | Documents:
    """Encoded documents as a model reads them."""
    return documents_of(rows) if reads == "documents" else flat_of(rows)


def flat_of(rows: Sequence[Row], device: torch.device | str = "cpu") -> Tokens:
    """Documents as they are encoded, a row each, for a model that reads a text whole."""
    flat, lengths = joined(rows)
    return padded(flat, lengths, device)


def documents_of(rows: Sequence[Row], device: torch.device | str = "cpu") -> Documents:
    """Documents as they are encoded, a sentence a row."""
    flat, lengths = joined(rows)
    ends = np.flatnonzero(flat == END)
    sentences = np.diff(np.searchsorted(ends, np.cumsum(lengths)), prepend=0)
    words = padded(flat[flat != END], np.diff(ends, prepend=-1) - 1, device)
    return Documents(words, torch.from_numpy(sentences).to(device))


def joined(rows: Sequence[Row]) -> tuple[Int64[np.ndarray, " t"], Int64[np.ndarray, " n"]]:
    """The tokens of all rows, one after the other, and how many each has."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.concatenate([np.zeros(0, np.int64), *(np.asarray(row, np.int64) for row in rows)]), lengths


def padded(flat: Int64[np.ndarray, " t"], lengths: Int64[np.ndarray, " n"], device: torch.device | str) -> Tokens:
    """Rows that lie one after the other as a rectangle."""
    ids = np.full((len(lengths), max(1, int(lengths.max(initial=0)))), PAD, np.int64)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = flat
    return Tokens.of(torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device))
