"""Keys and values that are ready: projected once, or filled step by step."""

# b batch · m keys · p width of a projected key · dv value width
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ArgumentError, ShapeError

__all__ = ["Cache", "Prepared", "State"]


@dataclass(eq=False)
class Prepared:
    """Projected keys and their values, accepted wherever keys are by the module that made them."""

    keys: Float[Tensor, "*bk m p"]  # of Heads: [*b heads m p]
    values: Float[Tensor, "*bv m dv"]
    owner: nn.Module
    length: Int[Tensor, "..."] | None = None  # [rows]: keys that exist, where that is not all of them

    def check_owner(self, module: nn.Module, name: str = "keys") -> None:
        """Refuse what another module projected."""
        if self.owner is not module:
            mine, other = type(module).__name__, type(self.owner).__name__
            raise ArgumentError(
                f"{name}: a Prepared from another module ({other}) given, expected one from this {mine}'s own prepare()"
            )


@dataclass(eq=False)
class Cache(Prepared):
    """Fixed buffers [rows … size d] that fill up, each row at its own pace; written by index, in place.

    Its tensors never change their address or shape, so that a step can be captured once and replayed. It is for
    inference: no gradient flows through what was written. (On a CPU, where nothing is captured, buffers lie step by
    step, [size rows … d], and `select_` changes them for a second pair: a beam is reordered several times as fast.)
    """

    spare: tuple[Tensor, Tensor] | None = None
    alone: bool = False  # positions are told by where keys lie, so that the rows of a beam cannot share them

    def extend(self, new: Prepared) -> None:
        """Write new keys and values behind what each row has."""
        new.check_owner(self.owner)
        for name, buffer, given in (("keys", self.keys, new.keys), ("values", self.values, new.values)):
            if (
                given.ndim != buffer.ndim
                or given.shape[:-2] != buffer.shape[:-2]
                or given.shape[-1] != buffer.shape[-1]
            ):
                expected = [*buffer.shape[:-2], "n", buffer.shape[-1]]
                raise ShapeError(f"{name}: {list(given.shape)} given, expected the cache's rows, {expected}")
        count, size = new.keys.shape[-2], self.keys.shape[-2]
        assert self.length is not None
        known = self.known()
        if known is not None and known[1] + count > size:
            raise ShapeError(f"cache: row at {known[1]} + {count} given, expected at most its size, {size}")
        pairs = (self.keys, new.keys.detach()), (self.values, new.values.detach())
        with torch.no_grad():
            if known is not None and known[0] == known[1]:
                for buffer, tensor in pairs:
                    buffer[..., known[0] : known[0] + count, :] = tensor
            else:
                rows = torch.arange(len(self.length), device=self.length.device)[:, None]
                index = self.length[:, None] + torch.arange(count, device=self.length.device)
                index = index.clamp(max=size - 1)  # of rows that are done, and step on with the others of a graph
                for buffer, tensor in pairs:
                    buffer.movedim(-2, 1)[rows, index] = tensor.movedim(-2, 1).to(buffer.dtype)
            self.length += count

    def known(self) -> tuple[int, int] | None:
        """The fewest and the most keys of a row, where reading them is free."""
        assert self.length is not None
        if self.length.device.type != "cpu" or torch.compiler.is_compiling() or not self.length.numel():
            return None
        return int(self.length.min()), int(self.length.max())

    def filled(self) -> Prepared:
        """What is in it, without the room behind; where that is not known on the host, all of it."""
        known = self.known()
        if known is None or 0 in known:
            return self
        keys, values = self.keys[..., : known[1], :], self.values[..., : known[1], :]
        return Prepared(keys, values, self.owner, None if known[0] == known[1] else self.length)

    def select_(self, rows: Int[Tensor, " r"]) -> None:
        """Row i becomes what row rows[i] was: a beam reordered in place."""
        if len(rows) != len(self.keys):
            raise ShapeError(f"rows: {len(rows)} given, expected one for each of the cache's {len(self.keys)}")
        known = self.known()
        if known is None or self.spare is None:
            for buffer in self.buffers:
                buffer.copy_(buffer[rows])
            return
        # On a CPU nothing holds the addresses: what is filled goes into the second pair, and the two change places.
        for buffer, spare in zip((self.keys, self.values), self.spare, strict=True):
            torch.index_select(steps(buffer)[: known[1]], 1, rows, out=steps(spare)[: known[1]])
        (self.keys, self.values), self.spare = self.spare, (self.keys, self.values)
        assert self.length is not None
        self.length.copy_(self.length[rows])

    def put_(self, rows: Int[Tensor, " r"] | slice, other: "Cache") -> None:
        """Fill these rows with those of another cache, of the same size or of a smaller one."""
        assert self.length is not None
        assert other.length is not None
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
        """A new cache of these rows alone."""
        assert self.length is not None
        if self.spare is None:
            return Cache(self.keys[rows], self.values[rows], self.owner, self.length[rows])
        keys, values = (steps(buffer).index_select(1, rows).movedim(0, -2) for buffer in (self.keys, self.values))
        return with_spare(Cache(keys, values, self.owner, self.length[rows], alone=self.alone))

    def spread(self, rows: int) -> "Cache":
        """`rows` rows for each one; on a CPU they share their past, unless somebody watches the attention."""
        from regard.attention.shared_beam_cache import SharedBeamCache

        assert self.length is not None
        watched = self.owner._forward_hooks or self.owner._forward_pre_hooks
        beam = None if watched else SharedBeamCache.of(self, rows)
        return beam or self.take(torch.arange(len(self.length), device=self.length.device).repeat_interleave(rows))

    @property
    def buffers(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and length."""
        assert self.length is not None
        return self.keys, self.values, self.length


def empty_cache(
    owner: nn.Module,
    keys: tuple[int, ...],
    values: tuple[int, ...],
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> Cache:
    """A cache of zeros, by default with the dtype and on the device of the owner's parameters."""
    like = next(owner.parameters(), torch.empty(0))
    dtype, device = dtype or like.dtype, device or like.device
    length = torch.zeros(keys[0], dtype=torch.long, device=device)
    if length.device.type != "cpu":
        from regard.attention.beam_index_cache import BeamIndexCache

        buffers = [torch.zeros(shape, dtype=dtype, device=device) for shape in (keys, values)]
        cache = Cache(buffers[0], buffers[1], owner, length)
        return BeamIndexCache.of(cache) if len(keys) == 4 else cache  # those of Heads
    buffers = [torch.zeros(by_step(shape), dtype=dtype).movedim(0, -2) for shape in (keys, values)]
    return with_spare(Cache(buffers[0], buffers[1], owner, length))


def by_step(shape: tuple[int, ...]) -> tuple[int, ...]:
    """[rows … size d] as [size rows … d]."""
    return (shape[-2], *shape[:-2], shape[-1])


def steps(buffer: Float[Tensor, "r *a m d"]) -> Float[Tensor, "m r *a d"]:
    """A buffer's steps, one after the other."""
    return buffer.movedim(-2, 0)


def with_spare(cache: Cache) -> Cache:
    """The cache with a second pair of buffers like its own, for its rows in another order.

    Zeros, as a row that is not as far as others is multiplied by what lies behind its end, if only with weights of 0.
    """
    keys, values = (torch.zeros_like(steps(buffer)).movedim(0, -2) for buffer in (cache.keys, cache.values))
    cache.spare = keys, values
    return cache


@dataclass(eq=False)
class State:
    """What a decoder keeps between steps: some of it a sentence, some of it a hypothesis.

    `rows` hypotheses of each sentence lie side by side, so that they share what is kept of their sentence: a memory is
    projected once, and a beam's queries look at it together. Every part is a tensor or a Prepared whose first dimension
    is the sentence's, or the row's; all are written in place, so that a step can be captured once and replayed.
    """

    sentence: dict[str, Any]
    row: dict[str, Any]
    rows: int = 1

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
            raise ArgumentError(f"other: a state of {other.rows} rows a sentence given, expected {self.rows}")
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

    def take(self, rows: Int[Tensor, " s"]) -> "State":
        """A new state of these sentences alone, with all their rows."""
        sentence = {name: taken(part, rows) for name, part in self.sentence.items()}
        index = self.rows_of(rows)
        return State(sentence, {name: taken(part, index) for name, part in self.row.items()}, self.rows)

    def spread(self, rows: int) -> "State":
        """The state of `rows` hypotheses a sentence, all of them what its only one was."""
        if self.rows != 1:
            raise ArgumentError(f"spread: a state of {self.rows} rows a sentence, expected one")
        row: dict[str, Any] = {}
        for name, part in self.row.items():
            if isinstance(part, Cache):
                row[name] = part.spread(rows)
            else:
                row[name] = taken(part, torch.arange(len(part), device=part.device).repeat_interleave(rows))
        return State(self.sentence, row, rows)

    def rows_of(self, sentences: Int[Tensor, " s"] | slice) -> Any:
        """The rows of these sentences."""
        if self.rows == 1:
            return sentences
        if isinstance(sentences, slice):
            return slice(sentences.start * self.rows, sentences.stop * self.rows)
        return (sentences[:, None] * self.rows + torch.arange(self.rows, device=sentences.device)).flatten()

    def together(self, x: Float[Tensor, "r n d"]) -> Float[Tensor, "s m d"]:
        """The queries of a sentence's rows side by side, as they look at what the sentence has: [s, rows · n, d]."""
        return x.reshape(-1, self.rows * x.shape[-2], x.shape[-1])

    @property
    def coverage(self) -> Float[Tensor, "r m"] | None:
        """The weight each source position has had so far, a row each; None where it was not asked for."""
        return self.row.get("coverage")


def buffers(part: Tensor | Prepared) -> list[Tensor]:
    """The tensors of a part of a state."""
    if isinstance(part, Tensor):
        return [part]
    return [part.keys, part.values] if part.length is None else [part.keys, part.values, part.length]


def taken(part: Tensor | Prepared, rows: Tensor) -> Tensor | Prepared:
    """These rows of a part, in tensors of their own."""
    if isinstance(part, Tensor):
        return part[rows]
    if isinstance(part, Cache):
        return part.take(rows)
    keys, values, *length = (buffer[rows] for buffer in buffers(part))
    return type(part)(keys, values, part.owner, *length)
