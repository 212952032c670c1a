"""Keys and values that are ready: projected once, or filled step by step."""

# b batch · m keys · p width of a projected key · dv value width
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ArgumentError, ShapeError

__all__ = ["Cache", "Prepared"]


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
    inference: no gradient flows through what was written.
    """

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
        if self.length.device.type == "cpu" and self.length.numel() and int(self.length.max()) + count > size:
            raise ShapeError(
                f"cache: row at {int(self.length.max())} + {count} given, expected at most its size, {size}"
            )
        rows = torch.arange(len(self.length), device=self.length.device)[:, None]
        index = self.length[:, None] + torch.arange(count, device=self.length.device)
        with torch.no_grad():
            for buffer, tensor in ((self.keys, new.keys), (self.values, new.values)):
                buffer.movedim(-2, 1)[rows, index] = tensor.detach().movedim(-2, 1).to(buffer.dtype)
            self.length += count

    def select_(self, rows: Int[Tensor, " r"]) -> None:
        """Row i becomes what row rows[i] was: a beam reordered in place."""
        if len(rows) != len(self.keys):
            raise ShapeError(f"rows: {len(rows)} given, expected one for each of the cache's {len(self.keys)}")
        for buffer in self.buffers:
            buffer.copy_(buffer[rows])

    def put_(self, rows: Int[Tensor, " r"], other: "Cache") -> None:
        """Fill these rows with those of another cache of the same size."""
        other.check_owner(self.owner, "other")
        for buffer, source in zip(self.buffers, other.buffers, strict=True):
            if source.shape[1:] != buffer.shape[1:]:
                raise ShapeError(f"other: {list(source.shape)} given, expected rows of {list(buffer.shape[1:])}")
        for buffer, source in zip(self.buffers, other.buffers, strict=True):
            buffer[rows] = source

    def take(self, rows: Int[Tensor, " r"]) -> "Cache":
        """A new cache of these rows alone."""
        keys, values, length = (buffer[rows] for buffer in self.buffers)
        return Cache(keys, values, self.owner, length)

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
    buffers = [torch.zeros(shape, dtype=dtype, device=device) for shape in (keys, values)]
    return Cache(buffers[0], buffers[1], owner, torch.zeros(keys[0], dtype=torch.long, device=device))
