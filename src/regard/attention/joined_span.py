r"""Span, where a query may look, and spans joined with `&`: masks meet, biases add, gates multiply."""

# b batch · n queries · dq query width
from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from regard.errors import ArgumentError, DeviceError, ShapeError
from regard.kernels import SpanLimits


class Span:
    """A limit on where a query may look.

    One of your own overrides `narrow` and answers with `reach.with_mask(…)`, `with_bias(…)` or `with_gate(…)`.
    """

    first = False  # whether others need this one's answer: Lengths before Predictive

    def narrow(self, limits: SpanLimits, query: Tensor) -> SpanLimits:
        """The reach, narrowed by this span; `query` is [*b n dq], unprojected."""
        raise TypeError(f"{type(self).__name__} does not say where to look: override `narrow`")

    @property
    def parts(self) -> tuple["Span", ...]:
        """The spans that are joined in this one."""
        return (self,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __and__(self, other: "Span") -> "Span":
        joined = cast(Joined, join(self, other))
        learned = any(isinstance(part, nn.Module) for part in joined.parts)
        return JoinedModule(joined.parts) if learned else joined


class Joined(Span):
    """Several spans: masks meet, biases add, gates multiply."""

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
    """Joined spans of which some are learned, so that their parameters are found."""

    def __init__(self, parts: Sequence[Span]):
        nn.Module.__init__(self)
        self._parts = tuple(parts)
        self.learned = nn.ModuleList(part for part in parts if isinstance(part, nn.Module))

    def extra_repr(self) -> str:
        return " & ".join(type(part).__name__ if isinstance(part, nn.Module) else repr(part) for part in self.parts)


def join(*spans: Span | None) -> Span | None:
    """All of them, flat; None where there is none."""
    parts: list[Span] = []
    for span in spans:
        if span is None:
            continue
        if not isinstance(span, Span):
            raise ArgumentError(f"span: {type(span).__name__} given, expected a Span such as Lengths or Causal")
        parts.extend(parts_of(span))
    return (Joined(parts) if len(parts) > 1 else parts[0]) if parts else None


def parts_of(span: Span | None) -> tuple[Span, ...]:
    """The spans to ask one by one: those that `&` joined; one that narrows in a way of its own stays whole."""
    if span is None:
        return ()
    return span.parts if is_plain(span, Joined) else (span,)


def narrow_limits(span: Span, limits: SpanLimits, query: Tensor) -> SpanLimits:
    """The limits, narrowed by a span; an answer that is none is refused."""
    narrowed: object = span.narrow(limits, query)
    if not isinstance(narrowed, SpanLimits):
        name, actual = type(span).__name__, type(narrowed).__name__
        raise TypeError(f"{name}.narrow returned {actual}, expected limits, such as limits.with_mask(…)")
    return narrowed


def is_plain(span: Span, kind: type[Span]) -> bool:
    """Return whether a span is of this kind and narrows as it does: a subclass may have a way of its own."""
    return isinstance(span, kind) and type(span).narrow is kind.narrow


def check_device(name: str, tensor: Tensor, limits: SpanLimits) -> None:
    """Refuse a span's tensor that is not where the query is."""
    if tensor.device != limits.device:
        raise DeviceError(f"{name}: on {tensor.device}, expected {limits.device}, the query's device")


def per_row(name: str, value, limits: SpanLimits):  # type: ignore[no-untyped-def]
    """A number as it is; a tensor moved from the host if need be and checked to broadcast to the batch."""
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
