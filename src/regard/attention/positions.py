r"""Position encodings: attention by content cannot see the order of its keys; these add it.

Each takes `start`, the index of the first element (a number, or one per row), and a span: with `Packed` sequences,
positions count from the beginning of each sequence.
"""

# b batch · n positions · d width · h w height and width of a grid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.checks import check_positive, check_start
from regard.attention.span import Shared, Span, Start, split_packed
from regard.errors import ArgumentError, ShapeError
from regard.kernels import positions as count

__all__ = ["Embedded", "Rotary", "Sinusoidal", "Sinusoidal2D"]

Join = Literal["add", "concatenate"]
Sines = Literal["interleaved", "halves", "fairseq"]
WHOLE = (torch.int64, torch.int32)
NEAR = 2048  # number of positions in the precomputed tables
FIRST = {"fairseq": 2}  # the first position's number, after fairseq's row for padding; 0 in other forms


class Sinusoidal(nn.Module):
    r"""$PE_{t,2i} = \sin(t / 10000^{2i/d})$, $PE_{t,2i+1} = \cos(t / 10000^{2i/d})$, added or concatenated.

    Vaswani et al. 2017 (arXiv:1706.03762), section 3.5. Nothing is learned; any position is possible. `sines` is the
    order of the numbers, for models of other toolkits: "interleaved" is the paper's; "halves" has all sines before all
    cosines, like Marian; "fairseq" is "halves" with the frequencies $10000^{-i/(d/2-1)}$. `first` is the number of the
    first position, by default 2 for "fairseq" and 0 otherwise.
    """

    def __init__(self, size: int, join: Join = "add", *, sines: Sines = "interleaved", first: int | None = None):
        super().__init__()
        self.size, self.join, self.sines = check_positive(size=size)[0], check_join(join), sines
        if sines not in ("interleaved", "halves", "fairseq"):
            raise ArgumentError(f"sines: {sines!r} given, expected 'interleaved', 'halves' or 'fairseq'")
        if first is not None and (type(first) is not int or first < 0):
            raise ArgumentError(f"first: {first!r} given, expected a whole number from 0 on")
        self.first = FIRST.get(sines, 0) if first is None else first

    def forward(
        self, x: Float[Tensor, "*b n d"], start: Start = 0, span: Span | None = None
    ) -> Float[Tensor, "*b n e"]:
        """Return x with its position encodings."""
        packed, last = split_packed(span)[0], start + x.shape[-2] if isinstance(start, int) else NEAR + 1
        near = packed is None and isinstance(start, int) and 0 <= start <= last <= NEAR
        if near and x.device.type == "cpu" and not torch.compiler.is_compiling():
            return join_encoding(x, near_sinusoids(self.size, self.sines, self.first)[start:last], self.join)
        index = position_index(x.shape[-2], x.device, start, span)
        if packed is None or not isinstance(start, int) or x.shape[-2] <= start + packed.longest:
            return join_encoding(x, sinusoids(index, self.size, self.sines, self.first), self.join)
        # Packed sequences repeat the same few positions.
        table = self.table(start + packed.longest, x.device)
        return join_encoding(x, table.to(x.dtype)[index], self.join)

    def table(self, length: int, device: torch.device) -> Float[Tensor, "n e"]:
        """Return the encodings of the first positions, in float64 if the device supports it."""
        return sinusoids(torch.arange(length, device=device), self.size, self.sines, self.first)

    def extra_repr(self) -> str:
        sines = f", sines={self.sines!r}" * (self.sines != "interleaved")
        first = f", first={self.first}" * (self.first != FIRST.get(self.sines, 0))
        return f"{self.size}, join={self.join!r}{sines}{first}"


class Embedded(nn.Module):
    r"""One learned vector per position, up to `length` of them, added or concatenated.

    Gehring et al. 2017 (arXiv:1705.03122), section 3.1; Vaswani et al. 2017, table 3, row E.
    """

    def __init__(self, size: int, length: int, join: Join = "add"):
        super().__init__()
        self.size, self.length = check_positive(size=size, length=length)
        self.join = check_join(join)
        self.vectors = nn.Parameter(torch.empty(length, size))
        nn.init.normal_(self.vectors).data.mul_(0.02)

    def forward(
        self, x: Float[Tensor, "*b n d"], start: Start = 0, span: Span | None = None
    ) -> Float[Tensor, "*b n e"]:
        """Return x with its position encodings."""
        index = position_index(x.shape[-2], x.device, start, span)
        if index.device.type == "cpu" and index.numel() and not torch.compiler.is_compiling():
            for position in (int(index.min()), int(index.max())):
                if not 0 <= position < self.length:
                    raise ShapeError(f"x: position {position} given, Embedded has positions 0 … {self.length - 1}")
        return join_encoding(x, self.vectors[index], self.join)

    def extra_repr(self) -> str:
        return f"{self.size}, {self.length}, join={self.join!r}"


class Rotary(nn.Module):
    r"""Rotate pairs of a query or key by an angle that grows with its position: $q_i \cdot k_j$ depends on $i - j$.

    Su et al. 2021 (arXiv:2104.09864), section 3.2: the pair (2i, 2i+1) turns by $t \cdot 10000^{-2i/d}$.
    `Heads(…, rotary=Rotary(size // heads))` applies it to projected queries and keys.
    """

    def __init__(self, size: int):
        super().__init__()
        self.size = check_positive(size=size)[0]
        if size % 2:
            raise ArgumentError(f"size: {size} given, Rotary expects an even number, since it turns pairs")

    def forward(
        self, x: Float[Tensor, "*b n d"], start: Start = 0, span: Span | None = None
    ) -> Float[Tensor, "*b n d"]:
        """Rotate x by its positions."""
        return self.rotate(x, self.table(position_index(x.shape[-2], x.device, start, span), x.dtype))

    def table(self, index: Int[Tensor, "*i n"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return sine and cosine of each pair's angle at these positions; a sequence's queries and keys share them."""
        if index.device.type == "cpu" and index.numel() and not torch.compiler.is_compiling():
            least, most = map(int, torch.aminmax(index))
            if least >= 0 and most < NEAR:
                sin, cos = near_turns(self.size, dtype)
                return sin[index], cos[index]
        angle = angles(index, self.size, torch.promote_types(dtype, torch.float32))
        return angle.sin().to(dtype), angle.cos().to(dtype)

    def rotate(self, x: Float[Tensor, "*b n d"], table: tuple[Tensor, Tensor]) -> Float[Tensor, "*b n d"]:
        """Return x, rotated by the angles of a table."""
        if x.shape[-1] != self.size:
            raise ShapeError(f"x: width {x.shape[-1]} given, Rotary expects {self.size}")
        sin, cos = table
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)

    def extra_repr(self) -> str:
        return str(self.size)


@contextmanager
def without_modes() -> Iterator[None]:
    """Leave inference mode, gradients and torch-function modes inside the block, to compute tables for later calls."""
    with torch.inference_mode(False), torch.no_grad(), torch._C.DisableTorchFunction():
        yield


@cache
def near_turns(size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return sines and cosines of the first positions on a CPU, so that a decoding step only looks them up."""
    with without_modes():
        angle = angles(torch.arange(NEAR, device="cpu"), size, torch.promote_types(dtype, torch.float32))
        return angle.sin().to(dtype), angle.cos().to(dtype)


@cache
def near_pairs(size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosine and signed sine for each element of a pair: x cos + (its neighbour) sin is x, rotated."""
    sin, cos = near_turns(size, dtype)
    with without_modes():
        return cos.repeat_interleave(2, -1), torch.stack((-sin, sin), -1).flatten(-2)


@cache
def near_sinusoids(size: int, sines: Sines, first: int) -> Tensor:
    """Return the encodings of the first positions on a CPU, in float64."""
    with without_modes():
        return sinusoids(torch.arange(NEAR, device="cpu"), size, sines, first)


class Sinusoidal2D(nn.Module):
    r"""Positions on a grid: half of the channels are the sinusoids of the row, half those of the column.

    Wang and Liu 2019 (arXiv:1908.11415); the sinusoids are those of `Sinusoidal`.
    """

    def __init__(self, size: int, join: Join = "add"):
        super().__init__()
        self.size = check_positive(size=size)[0]
        if size % 2:
            raise ArgumentError(f"size: {size} given, Sinusoidal2D expects an even number: half rows, half columns")
        self.join = check_join(join)

    def forward(self, x: Float[Tensor, "*b c h w"]) -> Float[Tensor, "*b e h w"]:
        """Return the features [*b c h w] with their position encodings."""
        if x.ndim < 3:
            raise ShapeError(f"x: {list(x.shape)} given, expected [*b c h w]")
        height, width = x.shape[-2:]
        half = self.size // 2
        row = sinusoids(torch.arange(height, device=x.device), half)[:, None].expand(-1, width, -1)
        column = sinusoids(torch.arange(width, device=x.device), half)[None].expand(height, -1, -1)
        table = torch.cat((row, column), dim=-1)
        return join_encoding(x.movedim(-3, -1), table, self.join).movedim(-1, -3)

    def extra_repr(self) -> str:
        return f"{self.size}, join={self.join!r}"


def position_index(n: int, device: torch.device, start: Start, span: Span | None, keys: bool = False) -> Tensor:
    """Return every element's position: [n], or [*b n] for a start per row; with Packed, within each sequence."""
    packed = None if span is None or (type(span) is Shared and span.packed is None) else split_packed(span)[0]
    if type(start) is not int:
        if not isinstance(start, Tensor) or start.dtype not in WHOLE:
            check_start(start)
        if isinstance(start, Tensor) and start.device != device:
            start = start.to(device)
    if packed is not None:
        packed = packed.to(device)
        return (packed.keys if keys else packed.queries)[1] + start
    return count(start, n, device)


def angles(index: Tensor, size: int, dtype: torch.dtype, sines: Sines = "interleaved") -> Tensor:
    """Return t · 10000^(-2i/d) for every pair i, [*b n size/2]; fairseq has the power -i/(d/2 - 1) and no half pair."""
    # In float64 up to the remainder: position 10,000 times a frequency loses its fraction in float32.
    if index.device.type == "mps":  # MPS has no float64
        there = torch.float32 if dtype == torch.float64 else dtype
        return angles(index.cpu(), size, dtype, sines).to(index.device, there)
    if sines == "fairseq":
        half = size // 2
        power = torch.arange(half, device=index.device, dtype=torch.float64) / max(1, half - 1)
    else:
        power = torch.arange(0, size, 2, device=index.device, dtype=torch.float64) / size
    return (index[..., None] * torch.pow(10000.0, -power)).remainder(2 * torch.pi).to(dtype)


def sinusoids(index: Tensor, size: int, sines: Sines = "interleaved", first: int | None = None) -> Tensor:
    """Return sines and cosines, [*b n size]; an odd size has one cosine fewer, or for fairseq a final zero."""
    index = index + (FIRST.get(sines, 0) if first is None else first)
    if sines == "fairseq":
        angle = angles(index, size, torch.float64, sines)
        return nn.functional.pad(torch.cat((angle.sin(), angle.cos()), dim=-1), (0, size % 2))
    angle = angles(index, size, torch.float64)
    if sines == "halves":
        return torch.cat((angle.sin(), angle.cos()), dim=-1)[..., :size]
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)[..., :size]


def join_encoding(x: Tensor, encoding: Tensor, join: str) -> Tensor:
    """Add the encoding to x, or concatenate the two."""
    if join == "concatenate":
        return torch.cat((x, encoding.to(x.dtype).expand(*x.shape[:-1], -1)), dim=-1)
    if x.shape[-1] != encoding.shape[-1]:
        raise ShapeError(f"x: width {x.shape[-1]} given, expected {encoding.shape[-1]} (or join='concatenate')")
    return x + encoding.to(x.dtype)


def check_join(join: Join) -> Join:
    """Return the way of joining; raise ArgumentError unless it is "add" or "concatenate"."""
    if join not in ("add", "concatenate"):
        raise ArgumentError(f"join: {join!r} given, expected 'add' or 'concatenate'")
    return join
