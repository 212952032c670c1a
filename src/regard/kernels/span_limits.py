"""Limits on where each query may look: a joined span, resolved for one call into plain tensors and numbers.

Backends use the structure (a causal start, a window's radius) if they can, and otherwise the dense `mask`, `bias` and
`gate`. This module does not depend on the classes of `regard.attention`.
"""

# b batch · n queries · m keys
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar, cast

import torch
from torch import Tensor

from regard.errors import ShapeError

Made = TypeVar("Made")


@dataclass(frozen=True)
class Window:
    """The keys j with |j - centre_i| <= radius; with `sigma`, a Gaussian gate around the centre."""

    radius: int
    centre: Tensor | None = None  # [*b n], real; None: centre_i = start + i
    start: int | Tensor = 0
    sigma: float | None = None

    def centres(self, queries: int, device: torch.device) -> Tensor:
        """Return the centre of every query, [*b n] or [n]."""
        return self.centre if self.centre is not None else positions(self.start, queries, device)


@dataclass(frozen=True)
class Layout:
    """Packed sequences: the offsets of the queries and of the keys, and the longest lengths."""

    offsets: Tensor  # [sequences + 1]
    key_offsets: Tensor
    longest: int
    longest_key: int


@dataclass(frozen=True)
class SpanLimits:
    """Limits on where n queries may look among m keys; every tensor broadcasts to the scores' leading dimensions."""

    queries: int
    keys: int
    device: torch.device
    batch: tuple[int, ...] = ()
    lengths: Tensor | None = None  # [*b]: keys that exist
    min_length: int | None = None  # the smallest length, if the host knows it
    causal: int | Tensor | None = None  # index of the first query; None: not causal
    window: Window | None = None
    windows: tuple[Window, ...] = ()  # additional windows
    heads: int | None = None  # the number of heads, if scores have a head axis
    masks: tuple[Tensor, ...] = ()  # True: may look; each broadcasts to [*b n m]
    biases: tuple[Tensor, ...] = ()  # added to the scores
    gates: tuple[Tensor, ...] = ()  # multiplied after the weighting
    slopes: tuple[tuple[Tensor, int | Tensor], ...] = ()  # ALiBi's [heads], each with its start
    layout: Layout | None = None  # set for backends that take Packed sequences without padding
    needs_padding: bool = False  # a span besides the layout is not represented here, so that only padding supports it

    # ---- for spans

    def with_lengths(self, lengths: Tensor, min_length: int | None) -> Self:
        """Limit each row to its first `lengths` keys."""
        if self.lengths is not None:
            lengths = torch.minimum(self.lengths, lengths)
            min_length = None if min_length is None or self.min_length is None else min(min_length, self.min_length)
        return replace(self, lengths=lengths, min_length=min_length)

    def with_causal(self, start: int | Tensor) -> Self:
        """Limit query i to keys up to start + i."""
        if self.causal is None:
            return replace(self, causal=start)
        if isinstance(start, int) and isinstance(self.causal, int):
            return replace(self, causal=min(start, self.causal))
        both = (torch.as_tensor(one, device=self.device) for one in (start, self.causal))
        return replace(self, causal=torch.minimum(*both))

    def with_window(self, window: Window) -> Self:
        """Limit each query to keys near a centre."""
        if self.window is None:
            return replace(self, window=window)
        return replace(self, windows=(*self.windows, window))

    def with_mask(self, mask: Tensor) -> Self:
        """Limit each query to the keys where the mask is True."""
        return replace(self, masks=(*self.masks, mask))

    def with_bias(self, bias: Tensor) -> Self:
        """Add a bias to the scores."""
        return replace(self, biases=(*self.biases, bias))

    def with_gate(self, gate: Tensor) -> Self:
        """Multiply the weights by a gate, after the weighting."""
        return replace(self, gates=(*self.gates, gate))

    def with_slopes(self, slopes: Tensor, start: int | Tensor) -> Self:
        """Add ALiBi's bias -slope · |i - j|, one slope per head."""
        return replace(self, slopes=(*self.slopes, (slopes, start)))

    # ---- for backends

    def remember(self, key: object, make: Callable[[], Made]) -> Made:
        """Return `make()`; `SharedLimits` caches the result under `key`."""
        return make()

    def mask(self, first: int = 0, last: int | None = None) -> Tensor | None:
        """Combine all limits into one boolean tensor for keys first … last - 1; None if there are no limits."""
        parts = [mask if mask.shape[-1] == 1 else mask[..., first:last] for mask in self.masks]
        if self.lengths is not None or self.causal is not None or self.window is not None:
            j = torch.arange(first, self.keys if last is None else last, device=self.device)
            structured = self.structured_mask(j)
            parts += [] if structured is None else [structured]
        return parts[0] if len(parts) == 1 else combine(parts, torch.logical_and)

    def structured_mask(self, j: Tensor) -> Tensor | None:
        """Combine lengths, causality and windows into a mask at key indices j: [m], or [*b n w] with w per query."""
        parts = []
        if self.lengths is not None:
            parts.append(j < self.lengths[..., None, None])
        if self.causal is not None:
            parts.append(j <= positions(self.causal, self.queries, j.device)[..., None])
        for window in self.all_windows:
            parts.append((j - window.centres(self.queries, j.device).detach()[..., None]).abs() <= window.radius)
        return combine(parts, torch.logical_and)

    def bias(self, first: int = 0, last: int | None = None) -> Tensor | None:
        """Sum everything that is added to the scores of keys first … last - 1."""
        if len(self.biases) == 0 and len(self.slopes) == 0:
            return None
        parts = [bias if bias.shape[-1] == 1 else bias[..., first:last] for bias in self.biases]
        if self.slopes:
            j = torch.arange(first, self.keys if last is None else last, device=self.device)
            for slopes, start in self.slopes:  # ALiBi's -slope · |start + i - j|, [heads n m] or [*b heads n m]
                distance = positions(start, self.queries, j.device)[..., None] - j
                parts.append(-slopes[:, None, None] * distance.abs())
        return combine(parts, torch.add)

    def gate(self, first: int = 0, last: int | None = None) -> Tensor | None:
        """Multiply everything that gates the weights of keys first … last - 1."""
        parts = [gate if gate.shape[-1] == 1 else gate[..., first:last] for gate in self.gates]
        gated = [window for window in self.all_windows if window.sigma is not None]
        if gated:
            j = torch.arange(first, self.keys if last is None else last, device=self.device)
            parts += [gaussian(window, self.queries, j) for window in gated]
        return combine(parts, torch.mul)

    @property
    def all_windows(self) -> tuple[Window, ...]:
        """All windows."""
        return () if self.window is None else (self.window, *self.windows)

    @property
    def maybe_empty(self) -> bool:
        """Whether a query may see no key, as far as the host knows."""
        if self.masks or self.window is not None:
            return True
        if self.lengths is not None and not self.min_length:
            return True
        return self.causal is not None and not (isinstance(self.causal, int) and self.causal >= 0)

    def over_heads(self) -> Self:
        """Add a head axis before the queries to all limits."""
        with_heads = len(self.batch) + 3

        def row(start: int | Tensor) -> int | Tensor:
            return start if isinstance(start, int) or start.ndim == 0 else start.unsqueeze(-1)

        def over(window: Window) -> Window:
            centre = window.centre if window.centre is None or window.centre.ndim < 2 else window.centre.unsqueeze(-2)
            return replace(window, centre=centre, start=row(window.start))

        masks, biases, gates = (
            tuple(each if each.ndim < 3 or each.ndim == with_heads else each.unsqueeze(-3) for each in tensors)
            for tensors in (self.masks, self.biases, self.gates)
        )
        return replace(
            self,
            batch=(*self.batch, 1),
            lengths=None if self.lengths is None else cast(Tensor, row(self.lengths)),
            causal=None if self.causal is None else row(self.causal),
            window=None if self.window is None else over(self.window),
            windows=tuple(over(window) for window in self.windows),
            masks=masks,
            biases=biases,
            gates=gates,
            slopes=tuple((slopes, row(start)) for slopes, start in self.slopes),
        )


class SharedLimits(SpanLimits):
    """Limits that several layers share, with a cache for values derived from them."""

    def remember(self, key: object, make: Callable[[], Made]) -> Made:
        made: dict[object, Made] = vars(self).setdefault("made", {})
        if key not in made:
            made[key] = make()
        return made[key]


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that all broadcast to, a hundred times faster than torch's function for equal shapes."""
    first, *others = (tuple(shape) for shape in shapes)
    if all(shape == first for shape in others):
        return first
    longest = max(len(shape) for shape in (first, *others))
    padded = [(1,) * (longest - len(shape)) + shape for shape in (first, *others)]
    sizes = [{size for size in one if size != 1} for one in zip(*padded, strict=True)]
    if any(len(size) > 1 for size in sizes):
        text = ", ".join(str(list(shape)) for shape in (first, *others))
        raise ShapeError(f"leading dimensions: {text} given, expected what broadcasts")
    return tuple(size.pop() if size else 1 for size in sizes)


def merge_batch(x: Tensor, batch: Sequence[int], tail: int = 2) -> Tensor:
    """Expand the leading dimensions of x to `batch` and merge them into one, before the last `tail` dimensions."""
    shape = (*batch, *x.shape[x.ndim - tail :])
    if len(batch) == 1 and x.shape == shape:
        return x
    return x.expand(shape).reshape(math.prod(batch), *shape[len(batch) :])


def positions(start: int | Tensor, queries: int, device: torch.device) -> Tensor:
    """Compute start + i for every query: [n], or [*b n] for a start per row."""
    i = torch.arange(queries, device=device)
    return i + (start if isinstance(start, int) else start.unsqueeze(-1))


def gaussian(window: Window, queries: int, j: Tensor) -> Tensor:
    """Compute Luong's Gaussian exp(-(j - centre)² / 2σ²) (Luong et al. 2015, equation 10)."""
    assert window.sigma is not None
    distance = (j - window.centres(queries, j.device)[..., None]) * (1 / (window.sigma * math.sqrt(2)))
    return torch.exp(-distance.square())


def combine(parts: list[Tensor], join) -> Tensor | None:  # type: ignore[no-untyped-def]
    """Combine all parts into one tensor; return None if there are none."""
    if not parts:
        return None
    result = parts[0]
    for part in parts[1:]:
        result = join(result, part)
    return result
