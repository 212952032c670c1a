"""The state of a decoder between steps: caches and other tensors, a row for each sentence or for each hypothesis."""

# s sentences · r rows, one per hypothesis · n queries · m keys · d width
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.cache import Cache, Prepared, SharedBeamCache
from regard.attention.call_records import has_forward_hooks
from regard.attention.span import Span
from regard.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from regard.attention.fused_step import FusedStep


@dataclass(eq=False)
class State:
    """The state of a decoder between steps: some tensors per sentence, some per hypothesis.

    `rows` hypotheses of each sentence lie side by side, so that they share what is kept of their sentence: a memory is
    projected once, and a beam's queries look at it together. Every part is a tensor or a Prepared whose first dimension
    is the sentence's, or the row's; all are written in place, so that a step can be captured once and replayed.
    """

    sentence: dict[str, Any]
    row: dict[str, Any]
    rows: int = 1
    # The memory's span as all steps on a CPU ask it, until other sentences take a place.
    across: Span | None = field(default=None, init=False, repr=False)
    # The decoder's step on a CPU (`fused_step`) with the mask of its memory; False where the blocks take the steps.
    fused: "FusedStep | Literal[False] | None" = field(default=None, init=False, repr=False)
    memory_mask: Tensor | None = field(default=None, init=False, repr=False)

    def select_(self, rows: Int[Tensor, " r"]) -> None:
        """Row i becomes what row rows[i] was, a row of the same sentence: a beam reordered in place."""
        for part in self.row.values():
            if isinstance(part, Cache):
                part.select_(rows)
            else:
                for buffer in buffers(part):
                    buffer.copy_(buffer[rows])

    def put_(self, rows: Int[Tensor, " s"] | slice, other: "State") -> None:
        """Fill the place of these sentences, all their rows, with those of another state.

        It has the same sizes, or fewer keys: a memory of shorter sentences, which says how many there are. What else
        is told a source position is then followed by zeros.
        """
        if other.rows != self.rows or other.row.keys() != self.row.keys():
            raise ArgumentError(f"other: a state of {other.rows} rows per sentence given, expected {self.rows}")
        self.across = self.fused = None
        for mine, theirs, index in (
            (self.sentence, other.sentence, rows),
            (self.row, other.row, self.rows_of(rows)),
        ):
            for name, part in mine.items():
                if isinstance(part, Cache):
                    part.put_(index, theirs[name])
                    continue
                keyed = isinstance(part, Prepared)
                for buffer, source in zip(buffers(part), buffers(theirs[name]), strict=True):
                    into = buffer
                    if keyed and buffer.ndim > 1 and source.shape[-2] < buffer.shape[-2]:
                        into = buffer[..., : source.shape[-2], :]
                    elif not keyed and buffer.ndim > 1 and source.shape[1] < buffer.shape[1]:
                        buffer[index] = 0
                        into = buffer[:, : source.shape[1]]
                    if source.shape[1:] != into.shape[1:]:
                        raise ShapeError(
                            f"{name}: {list(source.shape)} given, expected rows of {list(buffer.shape[1:])}"
                        )
                    into[index] = source.to(buffer.dtype)

    def join(self, other: "State", steps: int) -> "State":
        """Return a new state of the sentences of both, with room for `steps` more of each.

        Shorter memories, and what else is told a source position, are followed by zeros. It is for searches on the
        host: nothing may hold the addresses of either.
        """
        if other.rows != self.rows or other.row.keys() != self.row.keys():
            raise ArgumentError(f"other: a state of {other.rows} rows per sentence given, expected {self.rows}")

        def both(mine: Any, theirs: Any) -> Any:
            return mine.join(theirs, steps) if isinstance(mine, Cache) else join_parts(mine, theirs)

        sentence = {name: both(part, other.sentence[name]) for name, part in self.sentence.items()}
        return State(sentence, {name: both(part, other.row[name]) for name, part in self.row.items()}, self.rows)

    def take(self, rows: Int[Tensor, " s"]) -> "State":
        """Return a new state of only these sentences, with all their rows."""
        sentence = {name: take_rows(part, rows) for name, part in self.sentence.items()}
        index = self.rows_of(rows)
        return State(sentence, {name: take_rows(part, index) for name, part in self.row.items()}, self.rows)

    def repeat_rows(self, rows: int) -> "State":
        """Return the state with `rows` hypotheses per sentence, all copies of its single one."""
        if self.rows != 1:
            raise ArgumentError(f"repeat_rows: a state of {self.rows} rows per sentence, expected one")
        row: dict[str, Any] = {}
        for name, part in self.row.items():
            if isinstance(part, Cache):
                row[name] = repeat_cache_rows(part, rows)
            else:
                row[name] = take_rows(part, torch.arange(len(part), device=part.device).repeat_interleave(rows))
        return State(self.sentence, row, rows)

    def rows_of(self, sentences: Int[Tensor, " s"] | slice) -> Any:
        """The rows of these sentences."""
        if self.rows == 1:
            return sentences
        if isinstance(sentences, slice):
            return slice(sentences.start * self.rows, sentences.stop * self.rows)
        return (sentences[:, None] * self.rows + torch.arange(self.rows, device=sentences.device)).flatten()

    def group_rows(self, x: Float[Tensor, "r n d"]) -> Float[Tensor, "s m d"]:
        """The queries of a sentence's rows side by side, as they look at what the sentence has: [s, rows · n, d]."""
        return x.reshape(-1, self.rows * x.shape[-2], x.shape[-1])

    @property
    def coverage(self) -> Float[Tensor, "r m"] | None:
        """The total weight of each source position so far, per row; None if coverage is off."""
        return self.row.get("coverage")


def repeat_cache_rows(cache: Cache, rows: int) -> Cache:
    """Repeat each row `rows` times; on a CPU they share their past, unless somebody watches the attention."""
    assert cache.length is not None
    shared = None if has_forward_hooks(cache.owner) else SharedBeamCache.from_cache(cache, rows)
    return shared or cache.take(torch.arange(len(cache.length), device=cache.length.device).repeat_interleave(rows))


def buffers(part: Tensor | Prepared) -> list[Tensor]:
    """The tensors of a part of a state."""
    if isinstance(part, Tensor):
        return [part]
    return [part.keys, part.values] if part.length is None else [part.keys, part.values, part.length]


def take_rows(part: Tensor | Prepared, rows: Tensor) -> Tensor | Prepared:
    """Copy some rows of a part into tensors of their own."""
    if isinstance(part, Tensor):
        return part[rows]
    if isinstance(part, Cache):
        return part.take(rows)
    keys, values, *length = (buffer[rows] for buffer in buffers(part))
    return type(part)(keys, values, part.owner, *length)


def join_parts(mine: Any, theirs: Any) -> Any:
    """Put the rows of two parts of a state behind each other: tensors, or projected memories of any lengths."""
    if isinstance(mine, Tensor):
        return join_tensors(mine, theirs)
    theirs.check_owner(mine.owner, "other")
    keys, values, *length = (join_tensors(*pair) for pair in zip(buffers(mine), buffers(theirs), strict=True))
    return Prepared(keys, values, mine.owner, *length)


def join_tensors(one: Tensor, two: Tensor) -> Tensor:
    """The rows of two tensors; those that are smaller in another dimension are followed by zeros there."""
    shape = [len(one) + len(two), *map(max, one.shape[1:], two.shape[1:])]
    if all(list(each.shape[1:]) == shape[1:] for each in (one, two)):
        return torch.cat([one, two])
    both, first = one.new_zeros(shape), 0
    for each in (one, two):
        both[(slice(first, first + len(each)), *map(slice, each.shape[1:]))] = each
        first += len(each)
    return both
