"""Packed batches: sentences end to end, filled up to a few fixed counts of tokens, so that few shapes occur.

A GPU computes nothing for the padding of a rectangle, and what is the same for all batches of a shape is done once for
each shape. What fills up lies in sentences of its own behind the real ones; nothing is expected of it.

s source tokens · t target tokens · r1 rows + 1
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from regard.data.batching import Batch, TensorBatch
from regard.data.tokenizer import END, PAD, START
from regard.errors import ArgumentError

NOTHING = -1  # what is expected where nothing is
PARTS = 24  # a count is rounded up by at most such a part of the budget, and by half of that on average
LEAST_ROWS, LEAST_LONGEST = 8, 16


@dataclass(frozen=True)
class PackedBatch(TensorBatch):
    """Sentences end to end. All numbers lie in one piece of memory, so that one copy brings them to a device."""

    numbers: Int32[Tensor, " k"]
    sizes: tuple[int, int]  # tokens of source and target, those that fill up among them
    rows: int  # sentences, those that fill up and empty ones among them
    longest: int  # what no sentence is longer than
    tokens: int  # to predict
    real: int  # sentences that are real; they come first

    def __len__(self) -> int:
        return self.real

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the batch's shape; batches of equal shape differ only in their numbers."""
        return *self.sizes, self.rows, self.longest

    def parts(self) -> tuple[Tensor, ...]:
        """Split into source, target as it is read, the expected next tokens, and the offsets of source and target."""
        source, target = self.sizes
        return self.numbers.split([source, target, target, self.rows + 1, self.rows + 1])

    @property
    def source(self) -> Int32[Tensor, " s"]:
        """The source's tokens."""
        return self.parts()[0]

    @property
    def target(self) -> Int32[Tensor, " t"]:
        """The tokens that the decoder reads: START first, without the END."""
        return self.parts()[1]

    @property
    def expected(self) -> Int32[Tensor, " t"]:
        """The token that follows each target token; -1 where nothing counts."""
        return self.parts()[2]

    def part(self, first: int, last: int) -> "PackedBatch":
        """Return some of the sentences, on the host only, with little filling, as memory is short by then."""
        source, _, expected, *offsets = (part.numpy() for part in self.parts())
        bounds = [offset[first : last + 1].astype(np.int64) for offset in offsets]
        lengths = np.stack([np.diff(bound) for bound in bounds], 1)
        lengths[:, 1] -= 1
        cut = [side[bound[0] : bound[-1]] for side, bound in zip((source, expected), bounds, strict=True)]
        inside = np.ones(len(cut[1]), bool)
        inside[np.cumsum(lengths[:, 1] + 1) - 1] = False  # the ENDs
        return pack(cut[0], cut[1][inside], lengths, 1)


def pack(sources: np.ndarray, targets: np.ndarray, lengths: Int64[np.ndarray, "b 2"], step: int) -> PackedBatch:
    """Pack rows of tokens, which lie end to end without start and end; counts are rounded up to multiples of `step`."""
    lengths = lengths + np.array([0, 1])
    real = lengths.sum(0)
    longest = round_up(int(lengths.max()), LEAST_LONGEST)
    sizes = -(-real // step) * step
    # What fills up, in as few sentences as there can be, which are of about equal lengths on each side.
    filling = int((-(-(sizes - real) // longest)).max())
    more = np.stack([np.diff(np.linspace(0, gap, filling + 1).astype(np.int64)) for gap in sizes - real], 1)
    rows = round_up(len(lengths) + filling, LEAST_ROWS)
    all_lengths = np.zeros((rows + 1, 2), np.int64)
    all_lengths[1 : len(lengths) + 1] = lengths
    all_lengths[len(lengths) + 1 : len(lengths) + filling + 1] = more
    offsets = np.cumsum(all_lengths, 0)
    source = np.full(sizes[0], PAD)
    source[: real[0]] = sources
    read, expected = np.full(sizes[1], PAD), np.full(sizes[1], NOTHING)
    begins, ends = offsets[: len(lengths), 1], offsets[1 : len(lengths) + 1, 1] - 1
    first, last = np.ones(real[1], bool), np.ones(real[1], bool)
    first[begins], last[ends] = False, False
    read[begins], expected[ends] = START, END
    read[: real[1]][first] = targets
    expected[: real[1]][last] = targets
    numbers = np.concatenate([source, read, expected, offsets[:, 0], offsets[:, 1]]).astype(np.int32)
    return PackedBatch(
        torch.from_numpy(numbers), (int(sizes[0]), int(sizes[1])), rows, longest, int(real[1]), len(lengths)
    )


def step_of(budget: int) -> int:
    """Choose the multiple to which counts of tokens are rounded up: a power of two, a fraction of the budget."""
    return max(16, 1 << max(0, (budget // PARTS).bit_length() - 1))


def round_up(number: int, least: int) -> int:
    """Round up to a power of two."""
    return max(least, 1 << (number - 1).bit_length())


def pad_up(batch: Batch, columns: int = 4, parts: int = 16) -> Batch:
    """Pad a batch further: lengths to multiples of `columns`, and rows by at most a given part of them.

    Rows that fill up read one token of padding, and nothing is expected of them.
    """
    rows = len(batch)
    grain = max(8, round_up(rows, 8) // (2 * parts))
    padded_rows = -(-rows // grain) * grain
    if batch.links is not None:
        raise ArgumentError("links: given, expected none: a batch with links cannot be rounded up")
    m, n = (-(-size // columns) * columns for size in (batch.source.shape[1], batch.target.shape[1] - 1))

    def grown(tensor: Tensor, size: int, filling: int) -> Tensor:
        result = tensor.new_full((padded_rows, *([size] if tensor.ndim == 2 else [])), filling)
        result[: len(tensor), ..., : tensor.shape[-1]] = tensor
        return result

    return Batch(
        grown(batch.source, m, PAD),
        torch.cat([batch.source_lengths, batch.source_lengths.new_ones(padded_rows - rows)]),
        grown(batch.target, n + 1, PAD),
        torch.cat([batch.target_lengths, batch.target_lengths.new_zeros(padded_rows - rows)]),
        batch.tokens,
    )
