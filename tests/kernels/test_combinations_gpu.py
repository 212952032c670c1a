"""On a CUDA device, every backend equals dense over all features of score, span and weighting together."""

import pytest
import torch
from draws import SEED
from kernels.combinations import BIASES, DOTS, KINDS, LIMITS, SOFT, WINDOWS, agree, forced, look

pytestmark = pytest.mark.gpu
ALIBI = {"alibi", "alibi from"}
HALF = (torch.float16, torch.bfloat16)
# by backend: dtypes, scores, spans, widths, sizes, the number of calls, and the required features
CASES = {
    "decode-step": (
        (torch.float32, *HALF),
        DOTS,
        {"lengths"},
        (7, 16),
        (1, 5, 16),
        60,
        {*DOTS, *KINDS, *SOFT, "lengths"},
    ),
    "one-tile": (
        HALF,
        DOTS,
        {"lengths", "causal"},
        (7, 16),
        (1, 7, 33, 65),
        60,
        {*DOTS, *KINDS, *SOFT, "lengths", "causal", "gradients"},
    ),
    "varlen": (HALF, DOTS, {"causal"}, (8, 16), (1, 7, 65), 30, {"packed", "packed heads", *SOFT, "gradients"}),
    "flex": (
        (torch.float32, torch.bfloat16),
        DOTS,
        {*ALIBI, "lengths", "causal from", "monotonic from"},
        (16,),
        (65,),
        10,
        {*ALIBI, "monotonic from", "lengths", "bias with temperature", "gradients"},
    ),
    "triton": (
        (torch.float32, *HALF),
        {"additive", "general"},
        {*LIMITS, *WINDOWS, "mask"},
        (7, 16),
        (1, 7, 65),
        16,  # each joins other limits, and compiles for ten seconds
        {"additive", "general", *SOFT, *LIMITS, *WINDOWS, "mask", "gradients"},
    ),
    "window": (
        (torch.float32, *HALF),
        {*DOTS, "additive"},
        {*LIMITS, *WINDOWS},
        (7, 16),
        (1, 7, 65),
        40,
        {"additive", *SOFT, *LIMITS, *WINDOWS, "gradients"},
    ),
    "few-queries": (
        (torch.float32, *HALF),
        DOTS,
        {*LIMITS, *BIASES, "mask"},
        (7, 16),
        (1, 5, 16),
        60,
        {*DOTS, *SOFT, *LIMITS, *BIASES, "mask", "bias with temperature"},
    ),
    "few-queries-additive": (
        (torch.float32, *HALF),
        {"additive"},
        {"lengths"},
        (7, 16),
        (1, 5, 16),
        40,
        {*SOFT, "lengths"},
    ),
    "sdpa": (
        (torch.float32, *HALF),
        DOTS,
        {*LIMITS, *BIASES, "mask", "monotonic"},
        (7, 8, 16),
        (1, 7, 65, 130),
        60,
        {*DOTS, *KINDS, *SOFT, *LIMITS, *BIASES, "mask", "bias with temperature", "gradients"},
    ),
    "chunked": (
        (torch.float32, *HALF),
        {"additive"},
        {*LIMITS, *BIASES, *WINDOWS},
        (7,),
        (1, 7, 65),
        40,
        {*SOFT, *LIMITS, "bias with temperature", "gradients"},
    ),
    "look": (
        (torch.float32, *HALF),
        {*DOTS, "additive", "location"},
        {*LIMITS, *BIASES, *WINDOWS},
        (7, 16),
        (1, 7, 65),
        60,
        {*SOFT, "location", "additive", "bias with temperature", "gradients"},
    ),
}
# A GPU's precision: tanh to 5e-4, float32 in TF32 inside some of torch's kernels, half precision rounded more than once
# (a bias for sdpa, weights before they multiply the values).
TOLERANCE = {torch.float32: 3e-3, torch.float16: 1e-2, torch.bfloat16: 6e-2}


def drawn(name, dtype):
    _, scores, spans, widths, sizes, *_ = CASES[name]
    where = {"seed": SEED, "dtype": dtype, "device": "cuda", "widths": widths, "sizes": sizes}
    return {**where, "scores": sorted(scores), "spans": sorted(spans), "tolerance": TOLERANCE[dtype]}


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, case in CASES.items() for dtype in case[0]])
def test_every_backend_equals_dense(name, dtype):
    *_, count, features = CASES[name]
    agree(look if name == "look" else forced(name), features, count=count, **drawn(name, dtype))


@pytest.mark.parametrize("name", ["one-tile", "varlen"])
def test_half_precision_alone(name):
    with pytest.raises(AssertionError, match="0 of 200 calls were served"):
        agree(forced(name), set(), count=1, most=200, **drawn(name, torch.float32))
