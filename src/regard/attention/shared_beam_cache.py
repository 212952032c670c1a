"""The cache of a beam: what all hypotheses of a sentence said lies in one place, and each knows its own line.

Hypotheses share most of their past, and at every step some die and others fork. Copying keys and values from row to row
each time costs more than looking at them. Here every step's keys stay where they were written, [s a slots d]; a row is
a mask over the slots, and forking copies the mask. The rows of a sentence ask together: one look for all of them.
"""

# s sentences · r rows of a sentence · a heads · d width of a head
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.cache import Cache, Prepared
from regard.errors import ShapeError

__all__ = ["SharedBeamCache"]

MOST_ROWS = 8  # rows: each looks at the slots of all, so that many of them are better off with copies of their own


@dataclass(eq=False)
class SharedBeamCache(Cache):
    """Keys and values [s a slots d], tokens of each row [s·r], and the slots that each row descends from."""

    rows: int = 1
    used: int = 0
    lineage: Bool[Tensor, "s r slots"] | None = None

    @classmethod
    def from_cache(cls, cache: Cache, rows: int) -> "SharedBeamCache | None":
        """`rows` hypotheses a sentence with the past of its only one; None where pasts are not equally long."""
        known = cache.length_range()
        if cache.spare is None or known is None or known[0] != known[1] or cache.private_rows or rows > MOST_ROWS:
            return None
        assert cache.length is not None
        size, used, count = cache.keys.shape[-2], known[0], len(cache.length)
        slots = used + (size - used) * rows
        buffers = []
        for buffer in (cache.keys, cache.values):
            wide = buffer.new_zeros(*buffer.shape[:-2], slots, buffer.shape[-1])
            wide[..., :used, :] = buffer[..., :used, :]
            buffers.append(wide)
        lineage = torch.zeros(count, rows, slots, dtype=torch.bool)
        lineage[..., :used] = True
        length = cache.length.repeat_interleave(rows)
        return cls(buffers[0], buffers[1], cache.owner, length, rows=rows, used=used, lineage=lineage)

    def extend(self, new: Prepared) -> None:
        """The next key and value of every row."""
        new.check_owner(self.owner)
        assert self.lineage is not None
        assert self.length is not None
        if new.keys.shape[-2] != 1:
            raise ShapeError(f"keys: {list(new.keys.shape)} given, expected one a row for a beam")
        if self.used + self.rows > self.keys.shape[-2]:
            raise ShapeError(f"cache: {self.used} of {self.keys.shape[-2]} slots used, and {self.rows} more given")
        place = slice(self.used, self.used + self.rows)
        for buffer, given in ((self.keys, new.keys), (self.values, new.values)):
            buffer[..., place, :] = given[..., 0, :].unflatten(0, (-1, self.rows)).movedim(1, -2)
        self.lineage[..., place] = torch.eye(self.rows, dtype=torch.bool)
        self.used += self.rows
        self.length += 1

    def select_(self, rows: Int[Tensor, " r"]) -> None:
        """Row i descends from what row rows[i] did."""
        assert self.lineage is not None
        assert self.length is not None
        used = self.lineage[..., : self.used]
        used.copy_(used.flatten(0, 1)[rows].view_as(used))
        self.length.copy_(self.length[rows])

    def take(self, rows: Int[Tensor, " r"]) -> "SharedBeamCache":
        """These rows alone: all that belong to some sentences."""
        assert self.lineage is not None
        assert self.length is not None
        sentences = rows[:: self.rows] // self.rows
        return SharedBeamCache(
            self.keys[sentences],
            self.values[sentences],
            self.owner,
            self.length[rows],
            rows=self.rows,
            used=self.used,
            lineage=self.lineage[sentences],
        )

    def contents(self) -> Prepared:
        """What is in it, of all rows together."""
        return Prepared(self.keys[..., : self.used, :], self.values[..., : self.used, :], self.owner)

    def visible_slots(self) -> Bool[Tensor, "s r slots"]:
        """The slots that each row descends from."""
        assert self.lineage is not None
        return self.lineage[..., : self.used]
