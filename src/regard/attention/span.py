r"""Spans: where may a query look?

A span narrows `SpanLimits` with a mask, a bias (added to the scores), a gate (multiplied after the weighting), or
several of them; `&` joins spans. It receives the unprojected query and the true lengths. `start`, a number or one per
row, is the index of the first query: a single query over a cache needs it to know its position.
"""

# b batch · n queries · m keys · dq query width · s sequences laid end to end
import copy
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.checks import check_offsets, check_positive, check_radius, check_start
from regard.errors import ArgumentError, DeviceError, DtypeError, ShapeError
from regard.kernels import SpanLimits, Window

__all__ = ["Alibi", "Causal", "Joined", "Lengths", "Mask", "Monotonic", "Packed", "Predictive", "Span", "join"]

Start = int | Tensor


class Span:
    """A limit on where a query may look.

    A subclass overrides `narrow` and returns `limits.with_mask(…)`, `limits.with_bias(…)` or `limits.with_gate(…)`.
    """

    first = False  # whether it must narrow before the other spans: Lengths before Predictive

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        """Return the limits, narrowed by this span; `query` is [*b n dq], unprojected."""
        raise TypeError(f"{type(self).__name__} does not say where to look: override `narrow`")

    @property
    def parts(self) -> tuple["Span", ...]:
        """The spans that make up this one."""
        return (self,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __and__(self, other: "Span") -> "Span":
        joined = cast(Joined, join(self, other))
        learned = any(isinstance(part, nn.Module) for part in joined.parts)
        return JoinedModule(joined.parts) if learned else joined


class Joined(Span):
    """Several spans: masks are intersected, biases added, gates multiplied."""

    def __init__(self, parts: Sequence[Span]):
        super().__init__()
        self._parts = tuple(parts)

    @property
    def parts(self) -> tuple[Span, ...]:
        return self._parts

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        for part in sorted(self.parts, key=lambda part: not part.first):
            limits = narrow_limits(part, limits, query)
        return limits

    def __repr__(self) -> str:
        return " & ".join(map(repr, self.parts))


class JoinedModule(nn.Module, Joined):
    """Joined spans some of which are modules, registered so that their parameters are found."""

    def __init__(self, parts: Sequence[Span]):
        nn.Module.__init__(self)
        self._parts = tuple(parts)
        self.learned = nn.ModuleList(part for part in parts if isinstance(part, nn.Module))

    def extra_repr(self) -> str:
        return " & ".join(type(part).__name__ if isinstance(part, nn.Module) else repr(part) for part in self.parts)


class Shared(Span):
    """A span, or none, for all layers of a stack: split into its parts once, and narrowed once for each shape.

    It lives for one call of the stack, so that its contents cannot change meanwhile; a memory's on a CPU lives until
    the state's sentences change (`State.across`). Only built-in spans that do not depend on the query's values are
    shared (`share`).
    """

    def __init__(self, span: Span | None):
        self.span = span
        self._parts: tuple[Span, ...] = () if span is None else parts_of(span)
        self.packed, self.rest = (None, []) if span is None else split_packed(span)
        self.made: dict[object, Any] = {}  # limits by shape, rotary tables by position

    @property
    def parts(self) -> tuple[Span, ...]:
        return self._parts

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        return limits if self.span is None else narrow_limits(self.span, limits, query)

    def __repr__(self) -> str:
        return repr(self.span)


def share(span: Span | None) -> Span | None:
    """Return the span for all layers of a stack: a Shared if every part is in SHAREABLE, otherwise the span itself."""
    if span is None or type(span) in SHAREABLE:
        return Shared(span)
    if isinstance(span, Shared) or not all(type(part) in SHAREABLE for part in parts_of(span)):
        return span
    return Shared(span)


def unshare(span: Span | None) -> Span | None:
    """Return the span inside a Shared, for code that expects the original."""
    return span.span if isinstance(span, Shared) else span


def join(*spans: Span | None) -> Span | None:
    """Join spans into one, flattened; None if there are none."""
    parts: list[Span] = []
    for span in spans:
        if span is None:
            continue
        if not isinstance(span, Span):
            raise ArgumentError(f"span: {type(span).__name__} given, expected a Span such as Lengths or Causal")
        parts.extend(parts_of(span))
    return (Joined(parts) if len(parts) > 1 else parts[0]) if parts else None


def parts_of(span: Span | None) -> tuple[Span, ...]:
    """Return the spans that `&` joined; a span with its own `narrow` stays whole."""
    if span is None or type(span) in SHAREABLE:
        return () if span is None else (span,)
    whole = type(span) is Shared or (isinstance(span, Joined) and type(span).narrow is Joined.narrow)
    return span.parts if whole else (span,)


def narrow_limits(span: Span, limits: SpanLimits, query: Tensor) -> SpanLimits:
    """Return the limits, narrowed by a span; raise TypeError if `narrow` returns anything else."""
    narrowed: object = span.narrow(limits, query)
    if not isinstance(narrowed, SpanLimits):
        name, actual = type(span).__name__, type(narrowed).__name__
        raise TypeError(f"{name}.narrow returned {actual}, expected limits, such as limits.with_mask(…)")
    return narrowed


def is_exactly(span: Span, kind: type[Span]) -> bool:
    """Return whether a span is an instance of `kind` and inherits its `narrow`; a subclass may override it."""
    return isinstance(span, kind) and type(span).narrow is kind.narrow


def check_device(name: str, tensor: Tensor, limits: SpanLimits) -> None:
    """Raise DeviceError if a span's tensor is not on the query's device."""
    if tensor.device != limits.device:
        raise DeviceError(f"{name}: on {tensor.device}, expected {limits.device}, the query's device")


def per_row(name: str, value, limits: SpanLimits):  # type: ignore[no-untyped-def]
    """Return a number as it is; check that a tensor broadcasts to the batch, and move it from the host if necessary."""
    if isinstance(value, int):
        return value
    if value.device != limits.device:
        if value.device.type != "cpu":
            check_device(name, value, limits)
        value = value.to(limits.device, non_blocking=limits.device.type == "cuda")
    batch = limits.batch
    fits = value.ndim <= len(batch) and all(
        a in (1, b) for a, b in zip(reversed(value.shape), reversed(batch), strict=False)
    )
    if not fits:
        raise ShapeError(f"{name}: {list(value.shape)} given, expected one per row, {list(batch)}")
    return value


class Lengths(Span):
    """Padding: row b has `lengths[b]` keys, and the rest are ignored. Lengths may be 0."""

    first = True

    def __init__(self, lengths: Int[Tensor, "*b"] | Sequence[Any] | int):
        if not isinstance(lengths, Tensor):
            try:
                lengths = torch.tensor(lengths)
            except (TypeError, ValueError) as error:
                raise DtypeError(f"lengths: {lengths!r} given, expected whole numbers, one per row") from error
        if lengths.is_floating_point() or lengths.dtype == torch.bool or lengths.is_complex():
            raise DtypeError(f"lengths: {lengths.dtype} given, expected whole numbers")
        self.lengths = lengths
        # Read lengths only on a CPU: on a GPU this would wait for the device.
        self.min_length: int | None = None
        self.max_length: int | None = None
        if lengths.device.type == "cpu" and lengths.numel() and not torch.compiler.is_compiling():
            self.min_length, self.max_length = int(lengths.min()), int(lengths.max())
            if self.min_length < 0:
                raise ShapeError(f"lengths: {self.min_length} given, expected numbers of at least 0")

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        if self.max_length is not None and self.max_length > limits.keys:
            raise ShapeError(f"lengths: {self.max_length} given, expected 0 … {limits.keys}, the number of keys")
        lengths = per_row("lengths", self.lengths, limits)
        if self.min_length is not None and self.min_length == limits.keys:  # no row has padding
            return limits
        return limits.with_lengths(lengths, self.min_length)

    def __repr__(self) -> str:
        short = self.max_length is not None and self.lengths.numel() <= 8
        return f"Lengths({self.lengths.tolist()})" if short else f"Lengths(of {list(self.lengths.shape)})"


class Causal(Span):
    """Masked attention: query i sees the keys up to start + i, itself included."""

    def __init__(self, start: Start = 0):
        self.start = start if type(start) is int else check_start(start)

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        return limits.with_causal(per_row("start", self.start, limits))

    def __repr__(self) -> str:
        return f"Causal({describe_start(self.start)})"


class Monotonic(Span):
    """Local-m: query i sees the keys within `radius` of start + i.

    Luong et al. 2015 (arXiv:1508.04025), section 3.2. A query further than `radius` beyond the last key sees nothing.
    """

    def __init__(self, radius: int, start: Start = 0):
        self.radius = check_radius(radius, 0)
        self.start = start if type(start) is int else check_start(start)

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        return limits.with_window(Window(self.radius, start=per_row("start", self.start, limits)))

    def __repr__(self) -> str:
        return f"Monotonic({self.radius}, {describe_start(self.start)})"


class Predictive(nn.Module, Span):
    r"""Local-p: a window around a predicted centre, and a Gaussian on the weights.

    $p_i = S \cdot \mathrm{sigmoid}(v^\top \tanh(W q_i))$, S the true length;
    $a_{ij} = \mathrm{softmax}_{|j - p_i| \le D}(e_{ij}) \cdot \exp(-(j - p_i)^2 / 2\sigma^2)$ with $\sigma = D/2$.

    Luong et al. 2015 (arXiv:1508.04025), equations 9 and 10. The Gaussian multiplies what the softmax gave, so the
    weights sum to at most one; the gradient reaches the centre through it alone.
    """

    def __init__(self, query_size: int, radius: int):
        super().__init__()
        self.query_size = check_positive(query_size=query_size)[0]
        self.radius = check_radius(radius, 1)
        self.hidden = nn.Linear(query_size, query_size, bias=False)
        self.v = nn.Parameter(torch.empty(query_size).uniform_(-1, 1) / math.sqrt(query_size))

    def centre(self, query: Float[Tensor, "*b n dq"], length: Int[Tensor, "..."] | int) -> Float[Tensor, "*c n"]:
        """Return p_i, in [0, S]."""
        hidden = torch.tanh(self.hidden(query))
        # bfloat16 has too few digits for a position.
        fraction = torch.sigmoid(
            (hidden @ self.v.to(hidden.dtype)).float() if hidden.element_size() < 4 else hidden @ self.v
        )
        return fraction * (length if isinstance(length, int) else length.unsqueeze(-1))

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        if query.shape[-1] != self.query_size:
            raise ShapeError(f"query: width {query.shape[-1]} given, Predictive expects {self.query_size}")
        length = limits.keys if limits.lengths is None else limits.lengths
        return limits.with_window(Window(self.radius, centre=self.centre(query, length), sigma=self.radius / 2))

    def extra_repr(self) -> str:
        return f"{self.query_size}, radius={self.radius}"


class Mask(Span):
    """Any boolean mask that broadcasts to [*b n m] (in Heads also [*b heads n m]); True: may look."""

    def __init__(self, mask: Tensor):
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            actual = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise DtypeError(f"mask: {actual} given, expected a boolean tensor (True: may look)")
        self.mask = mask

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        check_device("mask", self.mask, limits)
        mask, shape = self.mask, (*limits.batch, limits.queries, limits.keys)
        if mask.ndim == len(shape) + 1 and limits.heads is not None:  # a mask per head
            shape = (*limits.batch, limits.heads, limits.queries, limits.keys)
        fits = mask.ndim <= len(shape) and all(
            size in (1, target) for size, target in zip(reversed(mask.shape), reversed(shape), strict=False)
        )
        if not fits:
            raise ShapeError(f"mask: {list(mask.shape)} given, expected what broadcasts to {list(shape)}")
        return limits.with_mask(mask if mask.ndim > 1 else mask.expand(1, -1) if mask.ndim else mask.expand(1, 1))

    def __repr__(self) -> str:
        return f"Mask(of {list(self.mask.shape)})"


class Alibi(Span):
    r"""Linear biases: $-m_h |i - j|$ on the scores, one slope per head, instead of position encodings.

    Press et al. 2022 (arXiv:2108.12409), section 3. Slopes are $2^{-8(h+1)/H}$ if the number of heads H is a power of
    two; otherwise those of the next lower power, followed by every other slope of the next higher power. The paper's
    models are causal; here distance counts in both directions. A softmax's temperature divides the biases as well as
    the scores.
    """

    def __init__(self, heads: int, start: Start = 0):
        self.heads = check_positive(heads=heads)[0]
        self.start = start if type(start) is int else check_start(start)
        self.slopes = alibi_slopes(heads)

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        # Computed on the query's device: a copy from the host would block.
        there = self.slopes if limits.device.type == "cpu" else alibi_slopes(self.heads, limits.device)
        wide = there.to(torch.promote_types(torch.float32, query.dtype))
        return limits.with_slopes(wide, per_row("start", self.start, limits))

    def __repr__(self) -> str:
        return f"Alibi({self.heads}, {describe_start(self.start)})"


class Packed(Span):
    """Sequences laid end to end: sequence s holds the queries offsets[s] … offsets[s + 1], and sees only its own keys.

    `key_offsets` gives the keys' bounds if they differ (a target over its source). Other spans count within each
    sequence. Looks have block-diagonal scores and weights, [ΣN, ΣM].

    `sizes` is the number of tokens and an upper bound on the length of a sequence; `key_sizes` is the same for the
    keys. If they are given, nothing is read back from the device and the offsets are not checked.
    """

    def __init_subclass__(cls, **options: object) -> None:
        """Raise TypeError if a subclass overrides what is not always called: kernels read the offsets themselves."""
        super().__init_subclass__(**options)
        for name in ("narrow", "queries", "keys", "pad_queries", "pad_keys", "unpad", "unpad_pairs"):
            if getattr(cls, name) is not getattr(Packed, name):
                raise TypeError(
                    f"{cls.__name__} overrides `{name}`, which is not always called for a Packed span: join Packed "
                    "with a span of your own by &"
                )

    def __init__(
        self,
        offsets: Int[Tensor, " s1"] | Sequence[int],
        key_offsets: Int[Tensor, " s1"] | Sequence[int] | None = None,
        *,
        sizes: tuple[int, int] | None = None,
        key_sizes: tuple[int, int] | None = None,
    ):
        self.offsets, queries = check_offsets("offsets", offsets, sizes)
        self.key_offsets, keys = (
            (self.offsets, queries) if key_offsets is None else check_offsets("key_offsets", key_offsets, key_sizes)
        )
        if len(self.key_offsets) != len(self.offsets):
            raise ShapeError(
                f"key_offsets: {len(self.key_offsets)} given, expected as many as offsets, {len(self.offsets)}"
            )
        # Plain attributes, filled on first use: the lock of a cached_property breaks torch.compile.
        self._queries: tuple[Tensor, Tensor] | None = None
        self._keys: tuple[Tensor, Tensor] | None = None
        self._moved: Packed | None = None
        self.total, self.longest = queries
        self.total_keys, self.longest_key = keys

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        """Raise: attention splits packed sequences before it calls other spans, so no span may contain this one."""
        raise ArgumentError(f"span: {self!r} given inside a span with its own `narrow`, expected beside it: a & b")

    @property
    def queries(self) -> tuple[Tensor, Tensor]:
        """The sequence and position of every query, each [ΣN]."""
        if self._queries is None:
            self._queries = token_positions(self.offsets, self.total)
        return self._queries

    @property
    def keys(self) -> tuple[Tensor, Tensor]:
        """The sequence and position of every key, each [ΣM]."""
        if self.key_offsets is self.offsets:
            return self.queries
        if self._keys is None:
            self._keys = token_positions(self.key_offsets, self.total_keys)
        return self._keys

    def to(self, device: torch.device) -> "Packed":
        """Return the layout on another device; the copy is kept."""
        if self.offsets.device == device:
            return self
        if self._moved is None or self._moved.offsets.device != device:
            self._moved = copy.copy(self)
            self._moved._queries = self._moved._keys = self._moved._moved = None
            self._moved.offsets = self.offsets.to(device)
            same = self.key_offsets is self.offsets
            self._moved.key_offsets = self._moved.offsets if same else self.key_offsets.to(device)
        return self._moved

    def check(self, queries: int, keys: int) -> None:
        """Raise ShapeError if the tensors' lengths do not match the offsets."""
        for name, actual, total in (("query", queries, self.total), ("keys", keys, self.total_keys)):
            if actual != total:
                raise ShapeError(f"{name}: {actual} rows given, expected {total}, the last of Packed's offsets")

    def pad_queries(self, x: Tensor, heads: bool = False) -> Tensor:
        """Pad [ΣN d] to [s N d], or with heads [a ΣN d] to [s a N d]. Gaps hold real tokens, which are never used."""
        return pad_rows(x, self.offsets, self.longest, heads)

    def pad_keys(self, x: Tensor, heads: bool = False) -> Tensor:
        """Pad keys or values: [ΣM d] to [s M d], or with heads [a ΣM d] to [s a M d]."""
        return pad_rows(x, self.key_offsets, self.longest_key, heads)

    def unpad(self, x: Tensor, heads: bool = False) -> Tensor:
        """Unpad [s N d] to [ΣN d], or [s a N d] to [a ΣN d]."""
        row, position = self.queries
        return x[row, :, position].transpose(0, 1) if heads else x[row, position]

    def unpad_pairs(self, x: Tensor, heads: bool = False) -> Tensor:
        """Unpad [s (a) N M] to [(a) ΣN ΣM], with zeros between sequences."""
        (row, i), (column, j) = self.queries, self.keys
        x = x.movedim(0, -3)  # [(a) s N M]
        same = row[:, None] == column
        return x[..., row[:, None], i[:, None], j].masked_fill(~same, 0.0)

    def padded_span(self, rest: Sequence[Span]) -> Span:
        """Return the other spans for padded tensors: Lengths hide the padding, and a mask is split by sequence."""
        index = padded_index(self.offsets, self.longest), padded_index(self.key_offsets, self.longest_key)
        cut: list[Span] = []
        for part in rest:
            if isinstance(part, Lengths):
                raise ArgumentError("span: Lengths given together with Packed, whose offsets already are the lengths")
            if isinstance(part, Mask) and is_exactly(part, Mask):
                size = list(part.mask.shape)
                if not size or any(
                    a not in (1, b) for a, b in zip(size[-2:], (self.total, self.total_keys)[-len(size) :], strict=True)
                ):
                    raise ShapeError(f"mask: {size} given, expected what broadcasts to {[self.total, self.total_keys]}")
                whole = part.mask.expand(*part.mask.shape[:-2], self.total, self.total_keys)
                part = Mask(whole[..., index[0][:, :, None], index[1][:, None, :]].movedim(-3, 0))
            cut.append(part)
        lengths = self.key_offsets.diff()
        return cast(Span, join(Lengths(lengths), *cut))

    def __repr__(self) -> str:
        return f"Packed({len(self.offsets) - 1} sequences)"


def pad_rows(x: Tensor, offsets: Tensor, longest: int, heads: bool) -> Tensor:
    """Pad a packed tensor: one row per sequence."""
    cut = x[..., padded_index(offsets, longest), :]  # [(a) s N d]
    return cut.transpose(0, 1) if heads else cut


def padded_index(offsets: Tensor, longest: int) -> Tensor:
    """Return the packed index of position i of sequence s, [s longest]; padding points at an existing token."""
    index = offsets[:-1, None] + torch.arange(longest, device=offsets.device)
    return index.clamp(max=offsets[-1] - 1).clamp(min=0)


def token_positions(offsets: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Return the sequence and the position of every token."""
    token = torch.arange(total, device=offsets.device, dtype=offsets.dtype)
    row = torch.searchsorted(offsets[1:].contiguous(), token, right=True)
    return row, token - offsets[row]


def alibi_slopes(heads: int, device: torch.device | None = None) -> Float[Tensor, " heads"]:
    """Return ALiBi's slopes, [heads]."""
    if device is not None and device.type == "mps":  # MPS has no float64
        return alibi_slopes(heads).to(device, torch.float32)
    power = 1 << (heads.bit_length() - 1)
    first = torch.arange(1, power + 1, dtype=torch.float64, device=device) * (-8 / power)
    between = (2 * torch.arange(heads - power, dtype=torch.float64, device=device) + 1) * (-4 / power)
    return torch.exp2(torch.cat([first, between]))


def describe_start(start: Start) -> str:
    return repr(start) if isinstance(start, int) else f"of {list(start.shape)}"


def split_packed(span: Span | None) -> tuple[Packed | None, list[Span]]:
    """Split a span into its Packed part, if it has one, and the others."""
    if span is None:
        return None, []
    if type(span) is Shared:
        return span.packed, span.rest
    parts = parts_of(span)
    packed = [part for part in parts if isinstance(part, Packed)]
    if len(packed) > 1:
        raise ArgumentError("span: more than one Packed given, expected at most one")
    return (packed[0] if packed else None), [part for part in parts if not isinstance(part, Packed)]


SHAREABLE = {Alibi, Causal, Lengths, Mask, Monotonic, Packed}
