"""The one table of who serves what.

A `Request` describes a call in plain words; each `Backend` says why it cannot serve it, or None, and whether it is the
one to take when it can. The first backend of the table that can and should serves the call; `use_backend` forces one,
and one that cannot serve is an error, never a silent fallback.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ArgumentError, BackendError
from regard.kernels import reference
from regard.kernels.additive import chunked
from regard.kernels.dot import few, flex, sdpa, varlen
from regard.kernels.reference import Call
from regard.kernels.window import local

__all__ = ["BACKENDS", "Backend", "Request", "choose", "packed_natively", "use_backend"]


@dataclass(frozen=True)
class Request:
    """What a backend needs to know of a call before it says whether it can serve it."""

    score: str  # "bilinear", "additive" or "other"
    weighting: str  # "softmax" or another
    device: str
    dtype: torch.dtype
    rows: int
    queries: int
    keys: int
    width: int
    value_width: int
    dropout: bool = False
    gradient: bool = False
    causal: str | None = None  # "zero", "number" or "rows": how the start is given
    lengths: bool = False
    window: str | None = None  # "zero", "number", "rows" or "predicted": how the centre is given
    windows: int = 0  # how many
    gaussian: bool = False  # whether any of them multiplies weights after the softmax
    radius: int = 0
    mask: bool = False
    bias: bool = False
    slopes: str | None = None  # "zero", "number", "rows" or "several": how ALiBi's start is given
    bias_gradient: bool = False
    gate: bool = False
    packed: bool = False  # sequences end to end; every backend but varlen is given them padded
    across: bool = False  # keys lie in sequences of their own, which may be longer or shorter


@dataclass(frozen=True)
class Backend:
    """A way to serve calls."""

    name: str
    refusal: Callable[[Request], str | None]  # why not, or None
    wins: Callable[[Request], bool]  # whether to take it when it can serve
    attend: Callable[[Call], Tensor]


def plain_bilinear(request: Request) -> str | None:
    """What every fused dot-product kernel asks for."""
    if request.score != "bilinear":
        return f"it serves bilinear scores (dot, scaled, general, cosine), not {request.score} ones"
    if request.weighting != "softmax":
        return f"it serves Softmax, not {request.weighting}"
    if request.gate or request.gaussian:
        return "it cannot multiply weights after the softmax, as Predictive does"
    return None


def sdpa_refusal(request: Request) -> str | None:
    if request.bias_gradient:
        return "it gives no gradient to a bias"
    return plain_bilinear(request)


def few_refusal(request: Request) -> str | None:
    if request.dropout:
        return "it has no dropout on the weights"
    if request.gradient:
        return "it keeps nothing for a backward pass"
    return plain_bilinear(request)


def few_wins(request: Request) -> bool:
    """Whether two small products are faster than one fused kernel, as measured on two cores of a CPU."""
    return request.device == "cpu" and 1 < request.queries <= FEW and request.keys <= FEW_KEYS


def flex_refusal(request: Request) -> str | None:
    if refused := plain_bilinear(request):
        return refused
    if request.dropout:
        return "it has no dropout on the weights"
    if request.mask or request.bias:
        return "it serves structured spans, not an explicit mask or bias"
    if request.dtype == torch.float64 and request.device != "cpu":
        return "it has no kernel for float64"
    if request.windows > 1 or request.slopes == "several":
        return "it serves one window and one Alibi"
    if "rows" in (request.causal, request.window, request.slopes):
        return "its block mask needs one start for all rows, not one a row"
    if request.device == "cpu" and request.gradient:
        return "it has no backward pass on a CPU"
    if request.device != "cpu" and (request.width not in FLEX_WIDTHS or request.value_width not in FLEX_WIDTHS):
        return f"it serves widths of {FLEX_WIDTHS}, not {request.width} and {request.value_width}"
    return None


def varlen_refusal(request: Request) -> str | None:
    if refused := plain_bilinear(request):
        return refused
    if not request.packed:
        return "it serves Packed sequences only"
    if request.device != "cuda":
        return f"it runs on CUDA, not on {request.device}"
    if request.dtype not in (torch.float16, torch.bfloat16):
        return f"it takes float16 and bfloat16, not {request.dtype}"
    if request.dropout or request.mask or request.bias or request.slopes or request.window or request.lengths:
        return "it serves no dropout, mask, bias or window"
    if request.causal not in (None, "zero") or (request.causal and request.across):
        return "its causal form starts at 0 and counts from the end where keys outnumber queries"
    if request.width != request.value_width or request.width > WIDEST or request.width % 8:
        return f"it serves equal widths up to {WIDEST} in steps of 8, not {request.width} and {request.value_width}"
    return None


def window_refusal(request: Request) -> str | None:
    if request.window is None:
        return "it serves windows (Monotonic, Predictive) only"
    if request.score not in ("bilinear", "additive"):
        return f"it serves bilinear and additive scores, not {request.score} ones"
    if request.weighting != "softmax":
        return f"it serves Softmax, not {request.weighting}"
    if request.mask or request.bias or request.slopes or request.gate or request.windows > 1:
        return "it serves a window beside Lengths and Causal, not beside a mask, a bias or a gate of another span"
    return None


def chunked_refusal(request: Request) -> str | None:
    return None if request.score == "additive" else f"it serves additive scores, not {request.score} ones"


FEW, FEW_KEYS = 16, 512
FLEX_WIDTHS = (16, 32, 64, 128, 256)
WIDEST = 256
LARGE = 1 << 20  # numbers of [b n m h] from which recomputing them is worth its overhead


def window_wins(request: Request) -> bool:
    """Whether touching only the window pays, as measured on two cores of a CPU.

    Many queries of a bilinear score have a fused kernel for a rival, and share slices that are wider than a window.
    """
    width = 2 * request.radius + 1
    if request.score == "bilinear" and request.window != "predicted" and request.queries > local.TILE:
        return 4 * (width + local.TILE) <= request.keys
    return 2 * width <= request.keys


def attend_chunked(call: Call) -> Tensor:
    """The reference, its scores in chunks."""
    assert call.vector is not None
    return reference.sum_values(chunked.scores(call.query, call.keys, call.vector), call)


BACKENDS = (
    Backend("varlen", varlen_refusal, lambda request: True, varlen.attend),
    Backend(
        "flex",
        flex_refusal,
        lambda request: request.device == "cuda" and bool(request.window or request.slopes),
        flex.attend,
    ),
    Backend("window", window_refusal, window_wins, local.attend),
    Backend("few", few_refusal, few_wins, few.attend),
    Backend("sdpa", sdpa_refusal, lambda request: True, sdpa.attend),
    Backend(
        "chunked",
        chunked_refusal,
        lambda request: request.rows * request.queries * request.keys * request.width >= LARGE,
        attend_chunked,
    ),
    Backend("dense", lambda request: None, lambda request: True, reference.attend),
)
NAMES = tuple(backend.name for backend in BACKENDS)

# A threading.local, not a ContextVar: torch.compile(fullgraph=True) can trace it.
forced = threading.local()


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Within the block, in this thread, let one backend serve every call, or raise where it cannot."""
    if name not in NAMES:
        raise ArgumentError(f"use_backend: {name!r} is not a backend; choose one of {', '.join(NAMES)}")
    before = getattr(forced, "name", None)
    forced.name = name
    try:
        yield
    finally:
        forced.name = before


def choose(request: Request) -> Backend:
    """The backend that serves this request."""
    name = getattr(forced, "name", None)
    for backend in BACKENDS:
        if name is None:
            if backend.refusal(request) is None and backend.wins(request):
                return backend
        elif backend.name == name:
            if refused := backend.refusal(request):
                raise BackendError(f"the backend {name!r} cannot serve this call: {refused}")
            return backend
    raise BackendError("no backend serves this call")  # dense serves everything


def packed_natively(request: Request) -> bool:
    """Whether a Packed call is served as it lies; otherwise it is padded first and asked for again."""
    return getattr(forced, "name", None) in (None, "varlen") and choose(request).name == "varlen"
