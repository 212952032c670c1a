"""The features of an attention call, by name, and `describe`: a call in plain data, for the table of backends.

Every field of `Call` and of `SpanLimits` that changes what is computed is a feature or a size here, and a backend that
does not list a feature refuses it. Nothing here knows the classes of `regard.attention`.
"""

import math

import torch
from torch import Tensor

from regard.kernels.reference import Call
from regard.kernels.span_limits import broadcast
from regard.kernels.table import Request

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
MASKED = frozenset({LENGTHS, MASK, WINDOWS}) | CAUSALITY | ONE_WINDOW  # what `SpanLimits.mask` says of a span
BIASED = frozenset({BIAS, ALIBI, ALIBI_FROM, ALIBI_ROWS, ALIBIS})  # what `SpanLimits.bias` says


def describe(call: Call) -> Request:
    """Put a call into plain data, for the table."""
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
    # len, not bool: torch 2.11 cannot trace the bool of a tuple
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
    """The features of something that counts from a start: 0, another number, or one per row."""
    if isinstance(start, Tensor):
        return plainly, rows
    return (plainly, number) if start else (plainly,)
