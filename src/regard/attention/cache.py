"""Prepared keys and values, projected once; caches that fill step by step; and a decoder's state between steps."""

# b batch · m keys · p width of a projected key · dv value width
# s sentences · r rows, of one sentence or of all · a heads · t positions · d width of a head
import functools
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import ArgumentError, ShapeError
from regard.kernels import SpanLimits

if TYPE_CHECKING:
    from regard.attention.fused_step import FusedStep
    from regard.attention.span import Span

__all__ = ["Cache", "Prepared", "SharedBeamCache", "empty_cache"]


@dataclass(eq=False)
class Prepared:
    """Projected keys and their values; the module that made them accepts them wherever it accepts keys."""

    keys: Float[Tensor, "*bk m p"]  # of Heads: [*b heads m p]
    values: Float[Tensor, "*bv m dv"]
    owner: nn.Module
    length: Int[Tensor, "..."] | None = None  # [rows]: the number of keys that exist, if not all do

    def float(self) -> "Prepared":
        """Return keys and values in float32, for small steps, where each cast of half precision is one more kernel."""
        return Prepared(self.keys.float(), self.values.float(), self.owner, self.length)

    def copy(self) -> "Prepared":
        """Copy keys and values, without a gradient, into new tensors that a state may overwrite."""
        length = None if self.length is None else self.length.detach().clone()
        return Prepared(self.keys.detach().clone(), self.values.detach().clone(), self.owner, length)

    # ---- for other parts of Regard

    def check_owner(self, module: nn.Module, name: str = "keys") -> None:
        """Raise ArgumentError if another module projected these keys."""
        if self.owner is not module:
            mine, other = type(module).__name__, type(self.owner).__name__
            raise ArgumentError(
                f"{name}: a Prepared from another module ({other}) given, expected one from this {mine}'s own prepare()"
            )


@dataclass(eq=False)
class Cache(Prepared):
    """Fixed buffers [rows … size d] that fill in place, by index, each row at its own pace.

    The tensors never change address or shape, so that a step can be captured once and replayed. A cache is for
    inference: no gradient flows through it. (On a CPU the buffers' memory order is [size rows … d], so that the filled
    part is contiguous, and one step of all rows is written and read together.)
    """

    length: Int[Tensor, " rows"]
    private_rows: bool = False  # each of a beam's rows has its own copy of its past, in order
    # Fewest and most keys of any row on a CPU, with the tensor that they were read from and its version.
    bounds: tuple[Tensor, int, tuple[int, int]] | None = None

    def extend(self, new: Prepared) -> None:
        """Append new keys and values to each row."""
        if new.owner is not self.owner:
            new.check_owner(self.owner)
        for name, buffer, source in (("keys", self.keys, new.keys), ("values", self.values, new.values)):
            if (
                source.ndim != buffer.ndim
                or source.shape[:-2] != buffer.shape[:-2]
                or source.shape[-1] != buffer.shape[-1]
            ):
                expected = [*buffer.shape[:-2], "n", buffer.shape[-1]]
                raise ShapeError(f"{name}: {list(source.shape)} given, expected the cache's rows, {expected}")
        count, size = new.keys.shape[-2], self.keys.shape[-2]
        bounds = self.length_range()
        if bounds is not None and bounds[1] + count > size:
            raise ShapeError(f"cache: row at {bounds[1]} + {count} given, expected at most its size, {size}")
        with torch.no_grad() if torch.is_grad_enabled() else nullcontext():
            self.write_(new.keys.detach(), new.values.detach(), bounds)

    def select_(self, rows: Int[Tensor, " r"]) -> None:
        """Replace row i by the previous row rows[i]: reorder a beam in place."""
        if len(rows) != len(self.keys):
            raise ShapeError(f"rows: {len(rows)} given, expected one for each of the cache's {len(self.keys)}")
        bounds = self.length_range()
        for buffer in (self.keys, self.values):
            filled = buffer.movedim(-2, 0)[: None if bounds is None else bounds[1]]
            filled.copy_(filled.index_select(1, rows))
        self.length.copy_(self.length[rows])

    def put_(self, rows: Int[Tensor, " r"] | slice, other: "Cache") -> None:
        """Copy rows from another cache, of the same size or a smaller one, into these rows."""
        other.check_owner(self.owner, "other")
        pairs = (self.keys, other.keys), (self.values, other.values)
        parts = [buffer[..., : source.shape[-2], :] for buffer, source in pairs]
        for part, (buffer, source) in zip(parts, pairs, strict=True):
            if source.shape[1:] != part.shape[1:]:
                raise ShapeError(f"other: {list(source.shape)} given, expected rows of {list(buffer.shape[1:])}")
        for part, (_, source) in zip(parts, pairs, strict=True):
            part[rows] = source
        self.length[rows] = other.length

    def take(self, rows: Int[Tensor, " r"]) -> "Cache":
        """Return a new cache of only these rows."""
        keys, values = (x.movedim(-2, 0).index_select(1, rows).movedim(0, -2) for x in (self.keys, self.values))
        return Cache(keys, values, self.owner, self.length[rows], private_rows=self.private_rows)

    # ---- for other parts of Regard

    def write_(self, keys: Tensor, values: Tensor, bounds: tuple[int, int] | None) -> None:
        """Write keys and values, which `extend` has checked, after the existing ones."""
        count = keys.shape[-2]
        pairs = (self.keys, keys), (self.values, values)
        if bounds is not None and bounds[0] == bounds[1]:
            for buffer, tensor in pairs:
                buffer.narrow(-2, bounds[0], count).copy_(tensor)
        else:
            rows = torch.arange(len(self.length), device=self.length.device)[:, None]
            index = self.length[:, None] + torch.arange(count, device=self.length.device)
            index = index.clamp(max=self.keys.shape[-2] - 1)  # finished rows still step with the others
            for buffer, tensor in pairs:
                buffer.movedim(-2, 1)[rows, index] = tensor.movedim(-2, 1).to(buffer.dtype)
        self.advance(count, bounds)

    def advance(self, count: int, bounds: tuple[int, int] | None) -> None:
        """Record that every row has `count` more keys."""
        self.length += count
        if bounds is not None and not self.length.is_inference():
            self.bounds = self.length, self.length._version, (bounds[0] + count, bounds[1] + count)

    def length_range(self) -> tuple[int, int] | None:
        """Return the fewest and the most keys of any row if reading them is free, otherwise None."""
        if self.length.device.type != "cpu" or torch.compiler.is_compiling() or not self.length.numel():
            return None
        length, version, bounds = self.bounds or (None, 0, (0, 0))
        if length is self.length and length._version == version:
            return bounds
        return int(self.length.min()), int(self.length.max())

    def contents(self) -> Prepared:
        """Return the filled part of the cache, or all of it if the lengths are not known on the host."""
        bounds = self.length_range()
        if bounds is None or 0 in bounds:
            return self
        keys, values = self.keys[..., : bounds[1], :], self.values[..., : bounds[1], :]
        return Prepared(keys, values, self.owner, None if bounds[0] == bounds[1] else self.length)

    def join(self, other: "Cache", steps: int) -> "Cache":
        """Return a new cache with the rows of both, with room for `steps` more keys in each."""
        other.check_owner(self.owner, "other")
        length = torch.cat([self.length, other.length])
        used, count = int(length.max()), len(self.length)
        shapes = [
            (len(length), *buffer.shape[1:-2], used + steps, buffer.shape[-1]) for buffer in (self.keys, self.values)
        ]
        joined = empty_cache(self.owner, shapes[0], shapes[1], self.keys.dtype, self.keys.device)
        pairs = ((joined.keys, self.keys, other.keys), (joined.values, self.values, other.values))
        for buffer, mine, theirs in pairs:
            for rows, source in ((slice(count), mine), (slice(count, None), theirs)):
                here = min(used, source.shape[-2])
                buffer[rows][..., :here, :] = source[..., :here, :]
        joined.length, joined.private_rows = length, self.private_rows
        return joined


def empty_cache(
    owner: nn.Module,
    keys: tuple[int, ...],
    values: tuple[int, ...],
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> Cache:
    """Return a cache of zeros, by default with the dtype and device of the owner's parameters."""
    like = next(owner.parameters(), torch.empty(0))
    dtype, device = dtype or like.dtype, device or like.device
    with torch.inference_mode(False):  # inference tensors have no version, by which writes are detected
        length = torch.zeros(keys[0], dtype=torch.long, device=device)
    if length.device.type != "cpu":
        buffers = [torch.zeros(shape, dtype=dtype, device=device) for shape in (keys, values)]
        return Cache(buffers[0], buffers[1], owner, length)
    step_major = ((size, *rows, width) for *rows, size, width in (keys, values))
    buffers = [torch.zeros(shape, dtype=dtype).movedim(0, -2) for shape in step_major]
    return Cache(buffers[0], buffers[1], owner, length)


MOST_ROWS = 8  # rows per sentence: each attends to all rows' slots, so that with more rows, copies are faster


@dataclass(eq=False)
class SharedBeamCache(Cache):
    """The cache of a beam: keys and values [s a slots d], each row's length [s·r], and the slots of each row's past.

    Hypotheses share most of their past, and at every step some end and others fork. Copying keys and values between
    rows would cost more than attending to them. Here every step's keys stay in place; a row is a mask over the slots,
    and a fork copies the mask. One attention call serves all rows of a sentence.
    """

    rows: int = 1
    used: int = 0
    lineage: Bool[Tensor, "s r slots"] = field(kw_only=True)

    @classmethod
    def from_cache(cls, cache: Cache, rows: int) -> "SharedBeamCache | None":
        """Return a cache with `rows` hypotheses per sentence, which share its past; None if pasts differ in length."""
        length_range = cache.length_range()
        if (
            type(cache) is not Cache
            or length_range is None
            or length_range[0] != length_range[1]
            or cache.private_rows
            or rows > MOST_ROWS
        ):
            return None
        size, used, count = cache.keys.shape[-2], length_range[0], len(cache.length)
        slots = used + (size - used) * rows
        buffers = []
        for buffer in (cache.keys, cache.values):
            wide = buffer.new_zeros(*buffer.shape[:-2], slots, buffer.shape[-1])
            wide[..., :used, :] = buffer[..., :used, :]
            buffers.append(wide)
        lineage = torch.zeros(count, rows, slots, dtype=torch.bool)
        lineage[..., :used] = True
        with torch.inference_mode(False):  # with a version, as in `empty_cache`
            length = cache.length.repeat_interleave(rows)
        return cls(buffers[0], buffers[1], cache.owner, length, rows=rows, used=used, lineage=lineage)

    def extend(self, new: Prepared) -> None:
        """Append the next key and value of every row."""
        if new.owner is not self.owner:
            new.check_owner(self.owner)
        if new.keys.shape[-2] != 1:
            raise ShapeError(f"keys: {list(new.keys.shape)} given, expected one per row for a beam")
        if self.used + self.rows > self.keys.shape[-2]:
            raise ShapeError(f"cache: {self.used} of {self.keys.shape[-2]} slots used, and {self.rows} more given")
        self.write_(new.keys, new.values, self.length_range())

    def write_(self, keys: Tensor, values: Tensor, bounds: tuple[int, int] | None) -> None:
        """Write the next key and value of every row into its own new slot."""
        for buffer, entries in ((self.keys, keys), (self.values, values)):
            slots = buffer.narrow(-2, self.used, self.rows)
            slots.copy_(entries[..., 0, :].unflatten(0, (-1, self.rows)).movedim(1, -2))
        self.lineage.narrow(-1, self.used, self.rows).copy_(identity(self.rows))
        self.used += self.rows
        self.advance(1, bounds)

    def select_(self, rows: Int[Tensor, " r"]) -> None:
        """Give row i the past of row rows[i]."""
        used = self.lineage[..., : self.used]  # the rows of a sentence have equal lengths, which stay the same
        used.copy_(used.flatten(0, 1).index_select(0, rows).view_as(used))

    def take(self, rows: Int[Tensor, " r"]) -> "SharedBeamCache":
        """Return a cache of these rows, which are all rows of some sentences."""
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

    def join(self, other: Cache, steps: int) -> "SharedBeamCache":
        """Return a new cache with the sentences of both, with room for `steps` more; drop the slots of dead rows."""
        assert isinstance(other, SharedBeamCache)
        other.check_owner(self.owner, "other")
        parts = self.live_slots(), other.live_slots()
        used = max(lineage.shape[-1] for _, _, lineage in parts)
        slots, joined = used + steps * self.rows, []
        for tensors in zip(*parts, strict=True):
            at = -1 if tensors[0].dtype == torch.bool else -2
            shape = list(tensors[0].shape)
            shape[0], shape[at] = sum(map(len, tensors)), slots
            whole, first = tensors[0].new_zeros(shape), 0
            for tensor in tensors:
                whole[first : first + len(tensor)].narrow(at, 0, tensor.shape[at]).copy_(tensor)
                first += len(tensor)
            joined.append(whole)
        keys, values, lineage = joined
        length = torch.cat([self.length, other.length])
        return SharedBeamCache(keys, values, self.owner, length, rows=self.rows, used=used, lineage=lineage)

    def live_slots(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys, values and lineage of the slots in the past of at least one row of their sentence."""
        lineage = self.lineage[..., : self.used]
        live = lineage.any(1)
        most = int(live.sum(1).max()) if live.numel() else 0
        order = live.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        keys, values = (
            buffer.gather(-2, order[:, None, :, None].expand(-1, buffer.shape[1], -1, buffer.shape[-1]))
            for buffer in (self.keys, self.values)
        )
        return keys, values, lineage.gather(2, order[:, None].expand(-1, self.rows, -1))

    def contents(self) -> Prepared:
        """Return the filled keys and values, of all rows together."""
        return Prepared(self.keys[..., : self.used, :], self.values[..., : self.used, :], self.owner)

    def contents_within(self) -> tuple[Prepared, SpanLimits]:
        """Return the filled keys and values, and the limits that let each row see only the slots of its own past."""
        whole = Prepared(self.keys[..., : self.used, :], self.values[..., : self.used, :], self.owner)
        visible, batch = self.lineage[:, None, :, : self.used], (len(self.keys), 1)
        heads = self.keys.shape[1]
        return whole, SpanLimits(self.rows, self.used, self.keys.device, batch, heads=heads, masks=(visible,))


@functools.cache
def identity(rows: int) -> Bool[Tensor, "r r"]:
    """Return the mask of each row's new slot, [r r]."""
    with torch.inference_mode(False):
        return torch.eye(rows, dtype=torch.bool)


@dataclass(eq=False)
class BeamIndexCache(Cache):
    """The cache of a beam on a GPU: keys stay in place, [r a t d], and an index table locates them.

    At every step some hypotheses end and others fork. Copying their keys and values costs more than attending to them,
    and the cost grows with the sentence. Here only the table is reordered: position t of row r is stored in row
    `row_index[r, t]`. A kernel reads through the table.
    """

    row_index: Int[Tensor, "r t"] = field(kw_only=True)

    @classmethod
    def from_cache(cls, cache: Cache) -> "BeamIndexCache":
        """Return a BeamIndexCache in which each row stores its own past."""
        return cls(
            cache.keys,
            cache.values,
            cache.owner,
            cache.length,
            private_rows=cache.private_rows,
            row_index=identity_index(cache.keys),
        )

    def extend(self, new: Prepared) -> None:
        """Append new keys and values to each row; they are stored in the row itself."""
        count, rows = new.keys.shape[-2], torch.arange(len(self.length), device=self.length.device)
        index = self.length[:, None] + torch.arange(count, device=self.length.device)
        super().extend(new)
        self.row_index[rows[:, None], index.clamp(max=self.keys.shape[-2] - 1)] = rows[:, None].to(self.row_index.dtype)

    def contents(self) -> Prepared:
        """Return all contents, gathered so that each row holds its own past, for attention without the step kernel."""
        size = self.keys.shape[-2]
        row, position = self.row_index.long(), torch.arange(size, device=self.keys.device)
        keys, values = (buffer[row, :, position].transpose(1, 2) for buffer in (self.keys, self.values))
        return Prepared(keys, values, self.owner, self.length)

    def select_(self, rows: Int[Tensor, " r"]) -> None:
        """Give row i the past of row rows[i]."""
        if len(rows) != len(self.keys):
            raise ShapeError(f"rows: {len(rows)} given, expected one for each of the cache's {len(self.keys)}")
        self.row_index.copy_(self.row_index[rows])
        self.length.copy_(self.length[rows])

    def put_(self, rows: Int[Tensor, " r"] | slice, other: Cache) -> None:
        """Copy rows from another cache, of the same size or a smaller one, into these rows.

        `rows` are all rows of their sentences: the past of a row left out may be stored in these, and would be lost.
        """
        if isinstance(other, BeamIndexCache):
            whole = other.contents()
            other = Cache(whole.keys, whole.values, whole.owner, other.length)
        super().put_(rows, other)
        self.row_index[rows, : other.keys.shape[-2]] = identity_index(self.keys[..., :1, :])[rows]

    def take(self, rows: Int[Tensor, " r"]) -> "BeamIndexCache":
        """Return a new cache of only these rows, each with its own past."""
        whole = self.contents()
        keys, values = whole.keys[rows].contiguous(), whole.values[rows].contiguous()
        return BeamIndexCache(
            keys, values, self.owner, self.length[rows], private_rows=self.private_rows, row_index=identity_index(keys)
        )


def identity_index(keys: Tensor) -> Tensor:
    """Return the table in which every row stores its own positions."""
    rows, size = len(keys), keys.shape[-2]
    return torch.arange(rows, dtype=torch.int32, device=keys.device)[:, None].repeat(1, size)


# ---- the state of a decoder


@dataclass(eq=False)
class State:
    """The state of a decoder between steps: tensors per sentence and tensors per hypothesis.

    The `rows` hypotheses of each sentence are adjacent, and share everything that is stored per sentence: a memory is
    projected once, and a beam's queries attend to it together. Every part is a tensor or a Prepared whose first
    dimension is sentences or rows. All are updated in place, so that a step can be captured once and replayed.
    """

    sentence: dict[str, Any]
    row: dict[str, Any]
    rows: int = 1
    # The memory's span for all steps on a CPU, until `put_` replaces sentences.
    across: "Span | None" = field(default=None, init=False, repr=False)
    # The decoder's fused step on a CPU (`fused_step`) and the mask of its memory; False if the blocks run the steps.
    fused: "FusedStep | Literal[False] | None" = field(default=None, init=False, repr=False)
    memory_mask: Tensor | None = field(default=None, init=False, repr=False)

    def select_(self, rows: Int[Tensor, " r"]) -> None:
        """Replace row i by the previous row rows[i], of the same sentence: reorder a beam in place."""
        for part in self.row.values():
            if isinstance(part, Cache):
                part.select_(rows)
            else:
                for buffer in buffers(part):
                    buffer.copy_(buffer[rows])

    def put_(self, rows: Int[Tensor, " s"] | slice, other: "State") -> None:
        """Replace these sentences, with all their rows, by those of another state.

        The other state has the same sizes, or fewer keys (shorter memories, whose lengths it holds). Other tensors over
        source positions are then padded with zeros.
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

        Shorter memories, and other tensors over source positions, are padded with zeros. This is for searches on the
        host: no captured graph may hold the addresses of either state.
        """
        if other.rows != self.rows or other.row.keys() != self.row.keys():
            raise ArgumentError(f"other: a state of {other.rows} rows per sentence given, expected {self.rows}")

        def both(mine: Any, theirs: Any) -> Any:
            if isinstance(mine, Cache):
                return mine.join(theirs, steps)
            if isinstance(mine, Tensor):
                return join_tensors(mine, theirs)
            theirs.check_owner(mine.owner, "other")  # projected memories, of any lengths
            keys, values, *length = map(join_tensors, buffers(mine), buffers(theirs))
            return Prepared(keys, values, mine.owner, *length)

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
        """Return the rows of these sentences."""
        if self.rows == 1:
            return sentences
        if isinstance(sentences, slice):
            return slice(sentences.start * self.rows, sentences.stop * self.rows)
        return (sentences[:, None] * self.rows + torch.arange(self.rows, device=sentences.device)).flatten()

    def group_rows(self, x: Float[Tensor, "r n d"]) -> Float[Tensor, "s m d"]:
        """Put the queries of each sentence's rows side by side: [s, rows · n, d]."""
        return x.reshape(-1, self.rows * x.shape[-2], x.shape[-1])

    @property
    def coverage(self) -> Float[Tensor, "r m"] | None:
        """The total weight of each source position so far, per row; None if coverage is off."""
        return self.row.get("coverage")


def repeat_cache_rows(cache: Cache, rows: int) -> Cache:
    """Repeat each row `rows` times; on a CPU the copies share their past, unless the attention has hooks."""
    watched = len(cache.owner._forward_hooks) > 0 or len(cache.owner._forward_pre_hooks) > 0
    shared = None if watched else SharedBeamCache.from_cache(cache, rows)
    return shared or cache.take(torch.arange(len(cache.length), device=cache.length.device).repeat_interleave(rows))


def buffers(part: Tensor | Prepared) -> list[Tensor]:
    """Return the tensors of a part of a state."""
    if isinstance(part, Tensor):
        return [part]
    return [part.keys, part.values] if part.length is None else [part.keys, part.values, part.length]


def take_rows(part: Tensor | Prepared, rows: Tensor) -> Tensor | Prepared:
    """Copy some rows of a part into new tensors."""
    if isinstance(part, Tensor):
        return part[rows]
    if isinstance(part, Cache):
        return part.take(rows)
    keys, values, *length = (buffer[rows] for buffer in buffers(part))
    return type(part)(keys, values, part.owner, *length)


def join_tensors(one: Tensor, two: Tensor) -> Tensor:
    """Concatenate the rows of two tensors; pad other dimensions with zeros to the larger size."""
    shape = [len(one) + len(two), *map(max, one.shape[1:], two.shape[1:])]
    if all(list(each.shape[1:]) == shape[1:] for each in (one, two)):
        return torch.cat([one, two])
    both, first = one.new_zeros(shape), 0
    for each in (one, two):
        both[(slice(first, first + len(each)), *map(slice, each.shape[1:]))] = each
        first += len(each)
    return both
