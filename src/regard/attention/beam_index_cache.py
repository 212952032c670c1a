"""The cache of a beam on a GPU: keys stay where they were written, and a table says which row each position lies in.

At every step some hypotheses die and others fork. Copying their keys and values costs more than looking at them, and
lasts longer the longer the sentence; here only `row_index` [r t], a number per position, is put in another order. A
kernel reads through it.
"""

# r rows · a heads · t positions · d width of a head
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.cache import Cache, Prepared
from regard.errors import ShapeError
from regard.kernels import available


@dataclass(eq=False)
class BeamIndexCache(Cache):
    """Keys and values [r a t d], where position t of row r lies in row `row_index[r, t]`."""

    row_index: Int[Tensor, "r t"] | None = None

    @classmethod
    def from_cache(cls, cache: Cache) -> "BeamIndexCache":
        """A cache whose rows each have their own past."""
        return cls(
            cache.keys,
            cache.values,
            cache.owner,
            cache.length,
            private_rows=cache.private_rows,
            row_index=identity_index(cache.keys),
        )

    @property
    def index_table(self) -> Int[Tensor, "r t"]:
        """Return the row in which every position lies."""
        assert self.row_index is not None
        return self.row_index

    @property
    def serves_kernel(self) -> bool:
        """Return whether a kernel reads it as it lies."""
        return available(self.keys) and max(self.keys.shape[-1], self.values.shape[-1]) <= 256

    def extend(self, new: Prepared) -> None:
        """Append new keys and values to each row, in the row itself."""
        assert self.length is not None
        count, rows = new.keys.shape[-2], torch.arange(len(self.length), device=self.length.device)
        index = self.length[:, None] + torch.arange(count, device=self.length.device)
        super().extend(new)
        self.index_table[rows[:, None], index.clamp(max=len(self) - 1)] = rows[:, None].to(self.index_table.dtype)

    def contents(self) -> Prepared:
        """Return all contents with each row's past in the row itself, for attention without Regard's kernel."""
        size = self.keys.shape[-2]
        row, position = self.index_table.long(), torch.arange(size, device=self.keys.device)
        keys, values = (buffer[row, :, position].transpose(1, 2) for buffer in (self.keys, self.values))
        return Prepared(keys, values, self.owner, self.length)

    def select_(self, rows: Int[Tensor, " r"]) -> None:
        """Row i descends from what row rows[i] did."""
        assert self.length is not None
        if len(rows) != len(self.keys):
            raise ShapeError(f"rows: {len(rows)} given, expected one for each of the cache's {len(self.keys)}")
        self.index_table.copy_(self.index_table[rows])
        self.length.copy_(self.length[rows])

    def put_(self, rows: Int[Tensor, " r"] | slice, other: Cache) -> None:
        """Fill these rows, all of their sentences', with those of another cache, of the same size or of a smaller one.

        The past of another row of the sentence may lie in them: it would be lost.
        """
        if isinstance(other, BeamIndexCache):
            whole = other.contents()
            other = Cache(whole.keys, whole.values, whole.owner, whole.length)
        super().put_(rows, other)
        self.index_table[rows, : other.keys.shape[-2]] = identity_index(self.keys[..., :1, :])[rows]

    def take(self, rows: Int[Tensor, " r"]) -> "BeamIndexCache":
        """Return a new cache of only these rows, each with its own past."""
        assert self.length is not None
        whole = self.contents()
        keys, values = whole.keys[rows].contiguous(), whole.values[rows].contiguous()
        return BeamIndexCache(
            keys, values, self.owner, self.length[rows], private_rows=self.private_rows, row_index=identity_index(keys)
        )

    def __len__(self) -> int:
        """Return the number of positions that fit."""
        return self.keys.shape[-2]


def identity_index(keys: Tensor) -> Tensor:
    """The table of rows whose positions lie in themselves."""
    rows, size = len(keys), keys.shape[-2]
    return torch.arange(rows, dtype=torch.int32, device=keys.device)[:, None].repeat(1, size)
