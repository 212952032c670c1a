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
from regard.kernels.additive import few_queries as few_additive
from regard.kernels.additive import triton as fused_additive
from regard.kernels.dot import few_queries, flex, sdpa, varlen
from regard.kernels.reference import Call
from regard.kernels.triton import installed
from regard.kernels.window import cpu as window_cpu
from regard.kernels.window import triton as predicted_window

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
    packed: bool = False  # sequences end to end, the longest of which queries and keys are; most are given them padded
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


def where_it_is(attend: Callable[[Call], Tensor]) -> Callable[[Call], Tensor]:
    """The kernel on the device of its tensors: Triton launches on the current one, which may be another GPU."""

    def attended(call: Call) -> Tensor:
        if torch.compiler.is_compiling():
            return attend(call)
        with torch.cuda.device_of(call.query):
            return attend(call)

    return attended


def step_refusal(request: Request) -> str | None:
    """A decoding step on CUDA: few queries, over keys of which some are not there yet."""
    if request.device != "cuda":
        return f"it runs on CUDA, not on {request.device}"
    if not installed():
        return "Triton is not installed"
    if request.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"it takes float32, float16 and bfloat16, not {request.dtype}"
    if request.queries > STEP or request.packed:
        return f"it serves at most {STEP} queries of a padded row, not {request.queries}"
    if request.causal or request.window or request.mask or request.bias or request.slopes:
        return "it serves Lengths, not a mask, a bias or a window"
    if max(request.width, request.value_width) > WIDEST:
        return f"it serves widths up to {WIDEST}, not {request.width} and {request.value_width}"
    return few_refusal(request)


def attend_step(call: Call) -> Tensor:
    """The kernel is loaded when it is first asked for: Triton need not be there."""
    from regard.kernels.dot import decode_step

    return decode_step.attend(call)


def few_wins(request: Request) -> bool:
    """Whether two small products are faster than one fused kernel, as measured on two cores of a CPU."""
    return request.device == "cpu" and 1 < request.queries <= FEW and request.keys <= FEW_KEYS


def few_additive_refusal(request: Request) -> str | None:
    if request.score != "additive":
        return f"it serves additive scores, not {request.score} ones"
    if request.weighting != "softmax":
        return f"it serves Softmax, not {request.weighting}"
    if request.device != "cuda":
        return f"it runs on CUDA, not on {request.device}"
    if request.dtype == torch.float64:
        return "it computes in float32 and takes no float64"
    if request.dropout:
        return "it has no dropout on the weights"
    if request.gradient:
        return "it keeps nothing for a backward pass"
    if request.queries > few_additive.FEW:
        return f"it serves up to {few_additive.FEW} queries, not {request.queries}"
    if request.causal or request.window or request.mask or request.bias or request.slopes or request.gate:
        return "it serves Lengths, no other span"
    return None if installed() else "Triton is not installed"


def flex_refusal(request: Request) -> str | None:
    if refused := plain_bilinear(request):
        return refused
    if request.device not in ("cpu", "cuda"):
        return f"it runs on CPUs and on CUDA, not on {request.device}"
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


def short_refusal(request: Request) -> str | None:
    if refused := plain_bilinear(request):
        return refused
    if request.device != "cuda":
        return f"it runs on CUDA, not on {request.device}"
    if not installed():
        return "Triton is not installed"
    if request.dtype not in (torch.float16, torch.bfloat16):
        return f"it takes float16 and bfloat16, not {request.dtype}"
    if max(request.queries, request.keys) > SHORT:
        return f"it serves sequences up to {SHORT}, not {request.queries} queries and {request.keys} keys"
    if request.width != request.value_width or request.width > SHORT_WIDTH:
        return f"it serves equal widths up to {SHORT_WIDTH}, not {request.width} and {request.value_width}"
    if request.mask or request.bias or request.slopes or request.window:
        return "it serves Packed, Lengths and Causal, not a mask, a bias or a window"
    if request.causal not in (None, "zero"):
        return "its causal form starts at 0"
    return None


def short_wins(request: Request) -> bool:
    """Whether one tile a sequence is the fastest, as measured on an H200.

    Of plain rows of 128 keys, cuDNN's forward is faster by a sixth, and its backward slower.
    """
    return request.gradient or request.packed or request.lengths or max(request.queries, request.keys) <= 64


def attend_short(call: Call) -> Tensor:
    """Loaded when it is first asked for, as Triton need not be there."""
    from regard.kernels.dot import one_tile

    return one_tile.attend(call)


def triton_refusal(request: Request) -> str | None:
    """Additive scores, and either score around predicted centres."""
    predicted = request.window == "predicted"
    if request.score != "additive" and not (predicted and request.score == "bilinear"):
        return f"it serves additive scores, and bilinear ones under Predictive, not {request.score} ones"
    if request.weighting != "softmax":
        return f"it serves Softmax, not {request.weighting}"
    if request.device != "cuda":
        return f"it runs on CUDA, not on {request.device}"
    if not installed():
        return "Triton is not installed"
    if request.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"it takes float32, float16 and bfloat16, not {request.dtype}"
    if request.dropout:
        return "it has no dropout on the weights"
    if request.bias or request.slopes or request.gate or request.windows > 1:
        return "it serves no bias, no gate and one window"
    if predicted and (request.mask or request.radius > predicted_window.RADIUS):
        return f"around predicted centres it serves no mask, and a radius up to {predicted_window.RADIUS}"
    if request.rows > GRID:
        return f"it serves up to {GRID} rows, not {request.rows}"
    return None


def triton_wins(request: Request) -> bool:
    """Whether tiles of 64 by 64 are not mostly padding; a few queries without gradients have a kernel of their own."""
    if request.window == "predicted":
        return True
    tile = fused_additive.BLOCK
    fill = request.queries * request.keys * SPARSE >= -(-request.queries // tile) * -(-request.keys // tile) * tile**2
    return fill and few_additive_refusal(request) is not None


def attend_triton(call: Call) -> Tensor:
    """Whichever of the two kernels the call is for."""
    window = call.limits.window
    return (fused_additive if window is None or window.centre is None else predicted_window).attend(call)


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
STEP = 16
GRID = 65_535  # rows that one launch can have
SPARSE = 16  # how much padding the kernel may carry and still be faster than the plain expression
SHORT, SHORT_WIDTH = 128, 128
FLEX_WIDTHS = (16, 32, 64, 128, 256)
WIDEST = 256
LARGE = 1 << 20  # numbers of [b n m h] from which recomputing them is worth its overhead


def window_wins(request: Request) -> bool:
    """Whether touching only the window pays, as measured on two cores of a CPU.

    Many queries of a bilinear score have a fused kernel for a rival, and share slices that are wider than a window.
    """
    width = 2 * request.radius + 1
    if request.score == "bilinear" and request.window != "predicted" and request.queries > window_cpu.TILE:
        return 4 * (width + window_cpu.TILE) <= request.keys
    return 2 * width <= request.keys


def attend_chunked(call: Call) -> Tensor:
    """The reference, its scores in chunks."""
    assert call.vector is not None
    return reference.sum_values(chunked.scores(call.query, call.keys, call.vector), call)


BACKENDS = (
    Backend("step", step_refusal, lambda request: True, where_it_is(attend_step)),
    Backend("short", short_refusal, short_wins, where_it_is(attend_short)),
    Backend("varlen", varlen_refusal, lambda request: True, varlen.attend),
    Backend(
        "flex",
        flex_refusal,
        lambda request: request.device == "cuda" and bool(request.window or request.slopes),
        flex.attend,
    ),
    Backend("triton", triton_refusal, triton_wins, where_it_is(attend_triton)),
    Backend("window", window_refusal, window_wins, window_cpu.attend),
    Backend("few", few_refusal, few_wins, few_queries.attend),
    Backend("few-additive", few_additive_refusal, lambda request: True, where_it_is(few_additive.attend)),
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
NATIVE = ("short", "varlen")  # those that serve Packed sequences as they lie

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
    return getattr(forced, "name", None) in (None, *NATIVE) and choose(request).name in NATIVE
