"""Every way to compute attention equals dense over all features of score, span and weighting together."""

import interpreted as _  # noqa: F401 (Triton beside this NumPy)
import pytest
import torch
from draws import SEED
from kernels.combinations import (
    BIASES,
    DOTS,
    KINDS,
    LIMITS,
    SCORES,
    SOFT,
    SPANS,
    WEIGHTINGS,
    WINDOWS,
    agree,
    fold,
    forced,
    interpreted,
    look,
)

from regard.kernels import additive_chunked

TEMPERED = {*BIASES, "bias with temperature"}
# By way: the scores and spans to draw from, and the features that must be served, so that a refusing way fails.
EASY = [*LIMITS, *BIASES, "mask", "monotonic", "bias learned", "predictive"]  # sdpa serves most of them
WAYS = {
    "sdpa": (
        forced("sdpa"),
        SCORES,
        EASY,
        {*DOTS, *SOFT, *KINDS, *LIMITS, *TEMPERED, "mask", "monotonic", "gradients"},
    ),
    "few-queries": (
        forced("few-queries"),
        SCORES,
        EASY,
        {*DOTS, *SOFT, *KINDS, *LIMITS, *TEMPERED, "mask", "monotonic"},
    ),
    "window": (
        forced("window"),
        [*DOTS, "additive", "location"],
        [*LIMITS, *WINDOWS, "alibi"],
        {*DOTS, "additive", *SOFT, *KINDS, *LIMITS, *WINDOWS, "gradients"},
    ),
    "chunked": (
        forced("chunked"),
        ["additive", "own"],
        SPANS,
        {"additive", *SPANS, *WEIGHTINGS, *KINDS, *TEMPERED, "gradients"},
    ),
    "look": (look, SCORES, SPANS, {*SCORES, *SPANS, *WEIGHTINGS, *KINDS, *TEMPERED, "gradients"}),
    "fold": (
        fold,
        SCORES,
        [*LIMITS, *WINDOWS, "mask", "alibi", "alibi rows"],
        {*SCORES, *SOFT, "attention", "prepared", *LIMITS, *WINDOWS, "mask", "bias with temperature"},
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_every_way_equals_dense(name):
    way, scores, spans, features = WAYS[name]
    agree(way, features, count=50, seed=SEED, scores=sorted(scores), spans=sorted(spans))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 8e-2)])
@pytest.mark.parametrize("name", ["sdpa", "window", "chunked"])
def test_every_backend_equals_dense_in_other_precision(name, dtype, tolerance, monkeypatch):
    monkeypatch.setattr(additive_chunked, "CHUNK", 64)  # several chunks, of queries and of rows
    scores, spans = ["dot", "scaled", "general", "additive", "cosine"], sorted({*LIMITS, *WINDOWS, "mask"})
    drawn = {"count": 30, "seed": SEED, "dtype": dtype, "tolerance": tolerance, "scores": scores, "spans": spans}
    agree(forced(name), {"gradients"}, **drawn)


@pytest.mark.compile  # FlexAttention traces the index functions that the shape-checking hook wraps
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_equals_dense():
    spans = ["lengths", "causal", "causal from", "monotonic", "monotonic from", "alibi", "alibi from"]
    features = {*DOTS, *SOFT, *KINDS, *spans, "bias with temperature"}
    agree(forced("flex"), features, count=20, seed=SEED, dtype=torch.float32, scores=sorted(DOTS), spans=spans)


# by kernel: dtype, scores, spans and sizes to draw from, and the required features: in short, and in full
KERNELS = {
    "decode-step": (
        torch.float32,
        sorted(DOTS),
        ["lengths"],
        (1, 5),
        {"warm", "lengths", "heads"},
        {*DOTS, *KINDS, *SOFT},
    ),
    "one-tile": (
        torch.float16,
        sorted(DOTS),
        ["lengths", "causal"],
        (1, 7),
        {"warm", "packed", "gradients"},
        {*DOTS, *KINDS, *SOFT, "lengths", "causal"},
    ),
    "few-queries-additive": (torch.float32, ["additive"], ["lengths"], (1, 3), {"warm", "lengths"}, {*KINDS, *SOFT}),
    "triton": (
        torch.float32,
        ["additive"],
        ["lengths", "mask", "causal from"],
        (1, 3),
        {"warm", "gradients"},
        {*KINDS, *SOFT, "lengths", "mask", "causal from"},
    ),
    "predictive": (
        torch.float32,
        ["dot", "additive"],
        ["predictive", "lengths"],
        (1, 3),
        {"warm", "predictive", "gradients"},
        {*KINDS, *SOFT, "dot", "additive", "lengths"},
    ),
}


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_for_cuda_equal_dense_in_the_interpreter(name, full):
    pytest.importorskip("triton")
    dtype, scores, spans, sizes, features, more = KERNELS[name]
    way = interpreted("triton" if name == "predictive" else name)
    drawn = {"dtype": dtype, "sizes": sizes, "widths": (4, 7), "scores": scores, "spans": spans}
    agree(way, features | more if full else features, count=20 if full else 3, seed=SEED, **drawn)
