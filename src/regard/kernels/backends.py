"""The table of backends for attention calls.

`describe` turns a call into plain data: every field of `Call` and of `SpanLimits` that changes the result is a feature
or a size. Each `Backend` lists what it supports, and refuses everything else (see `kernels/planning.py`). `use_backend`
forces one; if it cannot serve a call, that is an error, never a silent fallback. `dense`, the specification, serves
everything. This module does not depend on the classes of `regard.attention`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.kernels import reference, triton
from regard.kernels.operations import additive, dot, window
from regard.kernels.planning import HALF, NEEDS_TRITON, SINGLE_OR_HALF, Condition, Request, Row, Table
from regard.kernels.reference import Call
from regard.kernels.span_limits import broadcast

# ---- the features of a call

BILINEAR, ADDITIVE, OTHER_SCORES = "bilinear scores", "additive scores", "scores of another form"
SCORES = {"bilinear": BILINEAR, "additive": ADDITIVE}
SOFTMAX, OTHER_WEIGHTS = "softmax", "weights of another kind"
WEIGHTS = {
    "softmax": SOFTMAX,
    "hard": "hard weights",
    "gumbel": "gumbel weights",
    "sparsemax": "sparsemax",
    "plain": "plain weights",
}
TEMPERATURE, DROPOUT, GRADIENT = "a temperature", "dropout on the weights", "a backward pass"
LENGTHS = "lengths"
CAUSAL, CAUSAL_FROM, CAUSAL_ROWS = "causality", "causality from a number", "causality from one start a row"
WINDOW, WINDOW_FROM, WINDOW_ROWS = "a window", "a window from a number", "a window from one start a row"
CENTRES, WINDOWS, GAUSSIAN = "predicted centres", "several windows", "a Gaussian around a window's centre"
ALIBI, ALIBI_FROM, ALIBI_ROWS = "ALiBi", "ALiBi from a number", "ALiBi from one start a row"
ALIBIS = "several ALiBis"
MASK, BIAS, BIAS_GRADIENT, GATE = "a mask", "a bias", "the gradient of a bias", "a gate behind the weights"
PACKED, PACKED_KEYS = "packed sequences", "packed keys of other lengths than the queries"
BESIDE_PACKED = "a span beside Packed that is not Causal()"

CAUSALITY = frozenset({CAUSAL, CAUSAL_FROM, CAUSAL_ROWS})
ONE_WINDOW = frozenset({WINDOW, WINDOW_FROM, WINDOW_ROWS, CENTRES})
MASKED = frozenset({LENGTHS, MASK, WINDOWS}) | CAUSALITY | ONE_WINDOW  # features that `SpanLimits.mask` computes
BIASED = frozenset({BIAS, ALIBI, ALIBI_FROM, ALIBI_ROWS, ALIBIS})  # features that `SpanLimits.bias` computes


def describe(call: Call) -> Request:
    """Describe a call as plain data, for the table."""
    limits, window, layout = call.limits, call.limits.window, call.limits.layout
    features = [SCORES.get(call.score, OTHER_SCORES), WEIGHTS.get(call.weighting, OTHER_WEIGHTS)]
    if call.temperature != 1.0:
        features.append(TEMPERATURE)
    if call.dropout > 0:
        features.append(DROPOUT)
    if torch.is_grad_enabled() and (
        call.query.requires_grad
        or call.keys.requires_grad
        or call.values.requires_grad
        or (call.vector is not None and call.vector.requires_grad)
    ):
        features.append(GRADIENT)
    if limits.lengths is not None:
        features.append(LENGTHS)
    if limits.causal is not None:
        if isinstance(limits.causal, int) and limits.causal == 0:
            features.append(CAUSAL)
        else:
            features += start_features(limits.causal, CAUSAL, CAUSAL_FROM, CAUSAL_ROWS)
    if window is not None:
        features += (
            (WINDOW, CENTRES)
            if window.centre is not None
            else start_features(window.start, WINDOW, WINDOW_FROM, WINDOW_ROWS)
        )
        if any(one.sigma is not None for one in limits.all_windows):
            features.append(GAUSSIAN)
    # torch 2.11 cannot trace the bool of a tuple, hence len
    if len(limits.windows) > 0:
        features.append(WINDOWS)
    if len(limits.slopes) > 0:
        features += (
            (ALIBI, ALIBIS)
            if len(limits.slopes) > 1
            else start_features(limits.slopes[0][1], ALIBI, ALIBI_FROM, ALIBI_ROWS)
        )
    if len(limits.masks) > 0:
        features.append(MASK)
    if len(limits.biases) > 0:
        features.append(BIAS)
        if any(bias.requires_grad for bias in limits.biases):
            features.append(BIAS_GRADIENT)
    if len(limits.gates) > 0:
        features.append(GATE)
    if layout is not None:
        features.append(PACKED)
        if layout.key_offsets is not layout.offsets:
            features.append(PACKED_KEYS)
        if limits.needs_padding:
            features.append(BESIDE_PACKED)
    batch = call.query.shape[:-2]
    sizes = {
        "rows": math.prod(batch if batch == call.keys.shape[:-2] else broadcast(batch, call.keys.shape[:-2])),
        "queries": limits.queries if layout is None else layout.longest,
        "keys": limits.keys if layout is None else layout.longest_key,
        "width": call.keys.shape[-1],
        "value width": call.values.shape[-1],
        "radius": 0 if window is None else window.radius,
    }
    return Request(call.query.device.type, (call.query.dtype,), tuple(features), sizes)


def start_features(start: int | Tensor, plainly: str, number: str, rows: str) -> tuple[str, ...]:
    """Return the features of a start: 0, another number, or one per row."""
    if isinstance(start, Tensor):
        return plainly, rows
    return (plainly, number) if start else (plainly,)


# ---- conditions on several features or sizes

# The largest sizes of the kernels in `triton/`, whose files load on first use.
DECODE_STEP, DECODE_STEP_WIDTH = 16, 256
FEW_ADDITIVE = 16
PREDICTED_RADIUS = 126  # the window of a query must fit one program
ONE_TILE, ONE_TILE_WIDTH = 128, 128
VARLEN_WIDTH = 256
FLEX_WIDTHS = (16, 32, 64, 128, 256)
GRID = 65_535  # rows in one launch

EQUAL_WIDTHS = Condition(
    lambda request: request.sizes["width"] == request.sizes["value width"], "it serves values of the keys' width"
)
WIDTH_IN_EIGHTS = Condition(lambda request: request.sizes["width"] % 8 == 0, "it serves widths in steps of 8")
ONLY_PACKED = Condition(lambda request: PACKED in request.features, "it serves packed sequences only")
ONLY_WINDOWS = Condition(lambda request: WINDOW in request.features, "it serves windows (Monotonic, Predictive) only")
CAUSAL_AMONG_ITSELF = Condition(
    lambda request: not (CAUSAL in request.features and PACKED_KEYS in request.features),
    "its causal form counts from the end where keys outnumber queries",
)
FLEX_DOUBLE = Condition(
    lambda request: request.device == "cpu" or torch.float64 not in request.dtypes, "it has no kernel for float64"
)
FLEX_BACKWARD = Condition(
    lambda request: request.device != "cpu" or GRADIENT not in request.features, "it has no backward pass on a CPU"
)
FLEX_TILES = Condition(  # its GPU kernel needs these widths
    lambda request: (
        request.device == "cpu"
        or (request.sizes["width"] in FLEX_WIDTHS and request.sizes["value width"] in FLEX_WIDTHS)
    ),
    f"it serves widths of {FLEX_WIDTHS}",
)
TRITON_SCORES = Condition(
    lambda request: ADDITIVE in request.features or CENTRES in request.features,
    "it serves additive scores, and bilinear scores around predicted centres only",
)
PREDICTED_WINDOW = Condition(  # the kernel for predicted centres must also support the rest of the call
    lambda request: (
        MASK not in request.features and request.sizes["radius"] <= PREDICTED_RADIUS
        if CENTRES in request.features
        else GAUSSIAN not in request.features
    ),
    "it serves a Gaussian around predicted centres only, and these without a mask, up to a radius of "
    f"{PREDICTED_RADIUS}",
)
NOT_PREDICTED = Condition(lambda request: CENTRES not in request.features, "it serves no predicted centres")

# ---- when a backend is faster than those after it in the table

ADDITIVE_TILE = 64
FEW, FEW_KEYS = 16, 512
SPARSE = 16  # how much padding the kernel may compute and still be faster than the plain expression
LARGE = 1 << 20  # elements of [b n m h] above which chunks, which are recomputed, are worth their overhead


def triton_wins(request: Request) -> bool:
    """Return whether tiles of 64 by 64 have little padding; a few queries without gradients use another kernel."""
    if CENTRES in request.features:
        return True
    tile, queries, keys = ADDITIVE_TILE, request.sizes["queries"], request.sizes["keys"]
    fill = queries * keys * SPARSE >= -(-queries // tile) * -(-keys // tile) * tile**2
    return fill and not FEW_QUERIES_ADDITIVE.serves(request)


def window_wins(request: Request) -> bool:
    """Return whether reading only the window is faster, as measured on two cores of a CPU.

    For a bilinear score, many queries compete with a fused kernel, and share slices that are wider than a window.
    """
    sizes, tile = request.sizes, window.TILE
    width = 2 * sizes["radius"] + 1
    if BILINEAR in request.features and CENTRES not in request.features and sizes["queries"] > tile:
        return 4 * (width + tile) <= sizes["keys"]
    return 2 * width <= sizes["keys"]


# ---- backends as functions


def triton_kernel(name: str) -> Callable[[Call], Tensor]:
    """Return the `attend` of a file in `triton/`, loaded on the first call, so that Triton is optional.

    It runs on the device of its tensors: Triton launches on the current one, which may be another GPU.
    """

    def attend(call: Call) -> Tensor:
        if torch.compiler.is_compiling():
            return getattr(triton, name).attend(call)
        with torch.cuda.device_of(call.query):
            return getattr(triton, name).attend(call)

    return attend


# ---- the table


@dataclass(frozen=True, kw_only=True)
class Backend(Row):
    """A row of the table, with the function that computes an attention call."""

    attend: Callable[[Call], Tensor]


FEW_QUERIES_ADDITIVE = Backend(
    name="few-queries-additive",
    attend=triton_kernel("few_queries"),
    devices=("cuda",),
    dtypes=SINGLE_OR_HALF,
    features=frozenset({ADDITIVE, SOFTMAX, TEMPERATURE, LENGTHS}),
    most={"queries": FEW_ADDITIVE},
    conditions=(NEEDS_TRITON,),
)

# One name, two kernels: the kernel for predicted centres is last, so that its refusal is reported for both.
TRITON = Backend(
    name="triton",
    attend=triton_kernel("window"),
    devices=("cuda",),
    dtypes=SINGLE_OR_HALF,
    features=frozenset({BILINEAR, ADDITIVE, SOFTMAX, TEMPERATURE, GRADIENT, LENGTHS, MASK, GAUSSIAN})
    | CAUSALITY
    | ONE_WINDOW,
    most={"rows": GRID},
    conditions=(TRITON_SCORES, PREDICTED_WINDOW, NEEDS_TRITON),
    wins=triton_wins,
)

# Sizes at which the choice may change, for bilinear scores without a window; other requests use exact sizes.
# `tests/kernels/test_backends.py` compares the cache with the table.
STEPS = {
    "rows": (),
    "queries": tuple(sorted({1, FEW, DECODE_STEP, 64, ONE_TILE})),
    "keys": tuple(sorted({64, ONE_TILE, FEW_KEYS})),
    "radius": (),
}
BACKENDS = Table(
    "attention",
    Backend(
        name="decode-step",
        attend=triton_kernel("decode_step"),
        devices=("cuda",),
        dtypes=SINGLE_OR_HALF,
        features=frozenset({BILINEAR, SOFTMAX, TEMPERATURE, LENGTHS}),
        most={"queries": DECODE_STEP, "width": DECODE_STEP_WIDTH, "value width": DECODE_STEP_WIDTH},
        conditions=(NEEDS_TRITON,),
    ),
    Backend(
        name="one-tile",
        attend=triton_kernel("one_tile"),
        devices=("cuda",),
        dtypes=HALF,
        features=frozenset({BILINEAR, SOFTMAX, TEMPERATURE, DROPOUT, GRADIENT, LENGTHS, CAUSAL, PACKED, PACKED_KEYS}),
        most={"queries": ONE_TILE, "keys": ONE_TILE, "width": ONE_TILE_WIDTH},
        conditions=(EQUAL_WIDTHS, NEEDS_TRITON),
        # Measured on an H200: for unpadded rows of 128 keys, cuDNN's forward is a sixth faster, its backward slower.
        wins=lambda request: (
            not {GRADIENT, PACKED, LENGTHS}.isdisjoint(request.features)
            or max(request.sizes["queries"], request.sizes["keys"]) <= 64
        ),
    ),
    Backend(
        name="varlen",
        attend=dot.attend_packed,
        devices=("cuda",),
        dtypes=HALF,
        features=frozenset({BILINEAR, SOFTMAX, TEMPERATURE, GRADIENT, CAUSAL, PACKED, PACKED_KEYS}),
        most={"width": VARLEN_WIDTH},
        conditions=(ONLY_PACKED, CAUSAL_AMONG_ITSELF, EQUAL_WIDTHS, WIDTH_IN_EIGHTS),
    ),
    Backend(
        name="flex",
        attend=dot.attend_flex,
        devices=("cpu", "cuda"),
        features=frozenset({BILINEAR, SOFTMAX, TEMPERATURE, GRADIENT, LENGTHS, CAUSAL, CAUSAL_FROM})
        | {WINDOW, WINDOW_FROM, ALIBI, ALIBI_FROM},
        conditions=(FLEX_DOUBLE, FLEX_BACKWARD, FLEX_TILES),
        # On a GPU it is faster if it can skip blocks of keys or avoid writing a bias.
        wins=lambda request: request.device == "cuda" and (WINDOW in request.features or ALIBI in request.features),
    ),
    replace(TRITON, attend=triton_kernel("additive"), conditions=(*TRITON.conditions, NOT_PREDICTED)),
    TRITON,
    Backend(
        name="window",
        attend=window.attend,
        features=frozenset({BILINEAR, ADDITIVE, SOFTMAX, TEMPERATURE, DROPOUT, GRADIENT, LENGTHS, GAUSSIAN})
        | CAUSALITY
        | ONE_WINDOW,
        conditions=(ONLY_WINDOWS,),
        wins=window_wins,
    ),
    Backend(
        name="few-queries",
        attend=dot.attend_few_queries,
        features=frozenset({BILINEAR, SOFTMAX, TEMPERATURE, BIAS_GRADIENT}) | MASKED | BIASED,
        # Two small products are faster than one fused kernel, as measured on two cores of a CPU.
        wins=lambda request: (
            request.device == "cpu" and 1 < request.sizes["queries"] <= FEW and request.sizes["keys"] <= FEW_KEYS
        ),
    ),
    FEW_QUERIES_ADDITIVE,
    Backend(
        name="sdpa",
        attend=dot.attend,
        features=frozenset({BILINEAR, SOFTMAX, TEMPERATURE, DROPOUT, GRADIENT}) | MASKED | BIASED,
    ),
    Backend(
        name="chunked",
        attend=additive.attend,
        features=frozenset({ADDITIVE, OTHER_WEIGHTS, *WEIGHTS.values(), TEMPERATURE, DROPOUT, GRADIENT})
        | frozenset({BIAS_GRADIENT, GATE, GAUSSIAN})
        | MASKED
        | BIASED,
        wins=lambda request: (
            request.sizes["rows"] * request.sizes["queries"] * request.sizes["keys"] * request.sizes["width"] >= LARGE
        ),
    ),
    Backend(name="dense", attend=reference.attend, features=None),
    steps=STEPS,
    exact=frozenset({ADDITIVE, OTHER_SCORES, WINDOW}),
)
NAMES = tuple(dict.fromkeys(backend.name for backend in BACKENDS))
ALIASES = {"step": "decode-step", "short": "one-tile", "few": "few-queries", "few-additive": "few-queries-additive"}
NATIVE = ("one-tile", "varlen")  # backends that take Packed sequences without padding

choose, plan = BACKENDS.choose, BACKENDS.plan


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Force one backend for every call in this thread, inside the block; a call that it cannot serve raises."""
    name = ALIASES.get(name, name)
    if name not in NAMES:
        raise ArgumentError(f"use_backend: {name!r} is not a backend; choose one of {', '.join(NAMES)}")
    forced, before = BACKENDS.forced, BACKENDS.forced.name
    forced.name = name
    try:
        yield
    finally:
        forced.name = before


def forced_backend() -> str | None:
    """Return the name of the backend that `use_backend` forces in this thread, or None."""
    return BACKENDS.forced.name


def packed_natively(request: Request) -> bool:
    """Return whether a backend takes this Packed call without padding; otherwise it is padded and described again."""
    return forced_backend() in (None, *NATIVE) and choose(request).name in NATIVE
