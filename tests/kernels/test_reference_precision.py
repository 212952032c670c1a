"""Scores above the range of float16 are finite in every backend, and give the right weights."""

import contextlib
import copy

import interpreted as _  # noqa: F401 (Triton beside this NumPy)
import pytest
import torch
from draws import SEED
from kernels.combinations import SOFT, WEIGHTINGS, Built, agree, fold, forced, interpreted, look
from torch import Tensor

from regard.attention import (
    Additive,
    Attention,
    Causal,
    Cosine,
    Dot,
    General,
    Heads,
    Location,
    Monotonic,
    Plain,
    Softmax,
    Span,
    use_backend,
)
from regard.errors import BackendError

DOTS = ["dot", "scaled", "general"]
SPANS = ["lengths", "causal", "mask", "alibi", "monotonic"]


def enlarge(built: Built) -> None:
    """Scale scores to 1e5 and more, from numbers within float16's range; for `Plain`, keep the sums within it."""
    with torch.no_grad():
        for number, leaf in enumerate(built.inputs):
            if number < 2:
                leaf.mul_(100).round_()
            elif built.words.weighting == "plain":
                leaf.mul_(1e-3)
        if isinstance(built.module, Heads) and built.words.weighting == "plain":
            built.module.projection.weight[-built.module.value_size :].mul_(1e-5)
        for name, parameter in built.module.named_parameters():
            if name.endswith((".v", "score.weight")) and built.words.score in ("additive", "location"):
                parameter.mul_(2e4 if built.words.score == "additive" else 500)


def fold_prepared(built: Built, gradients: bool) -> list[Tensor]:
    """Keys that a score projects are projected together: the rounding of a block can differ from that of all."""
    if built.words.score in ("general", "additive") and built.words.kind != "prepared":
        raise BackendError("its projections differ in the last bit")
    return fold(built, gradients)


WAYS = {
    "sdpa": (forced("sdpa"), DOTS, SPANS, {*DOTS, "alibi", "warm"}),
    "few-queries": (forced("few-queries"), DOTS, SPANS, {*DOTS, "alibi", "warm"}),
    "window": (forced("window"), [*DOTS, "additive"], ["monotonic", "causal"], {*DOTS, "additive", "warm"}),
    "chunked": (forced("chunked"), ["additive"], SPANS, {"additive", *SOFT}),
    "look": (look, [*DOTS, "additive", "location"], SPANS, {*DOTS, "additive", "location", *WEIGHTINGS}),
    "fold": (fold_prepared, [*DOTS, "additive", "location"], SPANS, {*DOTS, "additive", "location", *SOFT}),
    "decode-step": (interpreted("decode-step"), DOTS, ["lengths"], {*DOTS, "warm"}),
    "one-tile": (interpreted("one-tile"), DOTS, ["lengths", "causal"], {*DOTS, "warm"}),
    "few-queries-additive": (interpreted("few-queries-additive"), ["additive"], ["lengths"], {"additive", "warm"}),
}


@pytest.mark.parametrize("name", WAYS)
def test_large_scores_of_float16(name):
    way, scores, spans, features = WAYS[name]
    options = {"dtype": torch.float16, "sizes": (1, 7, 17), "widths": (16,), "tolerance": 5e-2}
    drawn = {"count": 6, "seed": SEED, "scores": scores, "spans": spans, "change": enlarge}
    agree(way, features, **drawn, **options, forward_only=True)


SCORES = {
    "dot": lambda: Dot(),
    "scaled": lambda: Dot(scaled=True),
    "general": lambda: General(16, 16),
    "additive": lambda: Additive(16, 16, hidden=8),
    "cosine": lambda: Cosine(1e6),
    "cosine learned": lambda: Cosine("learned"),
    "location": lambda: Location(16, 9),
}


def draw(name):
    """Return an attention whose scores far exceed 65,504, and integer inputs, which float16 represents exactly."""
    attention = Attention(SCORES[name](), weighting=Softmax(temperature=2.0))
    with torch.no_grad():
        if name == "additive":
            attention.score.v.mul_(3e4)
        if name == "location":
            attention.score.weight.mul_(1e3)
        if name == "cosine learned":
            attention.score.log_sharpness.fill_(13.0)
    query, keys = (torch.randint(-200, 200, (2, n, 16)).float() for n in (5, 9))
    return attention, query, keys, torch.randn(2, 9, 4)


def contexts(attention, query, keys, values):
    """Return the contexts of the chosen backend, of all that can be forced on a CPU, of look and of fold."""
    span = Monotonic(6) & Causal(4)
    found = {"chosen": attention(query, keys, values, span=span)}
    for name in ("dense", "sdpa", "few-queries", "window", "chunked"):
        with use_backend(name), torch.no_grad(), contextlib.suppress(BackendError):
            found[name] = attention(query, keys, values, span=span)
    found["look"] = attention.look(query, keys, values, span=span).context
    found["fold"] = attention.fold(query, [(keys[:, :4], values[:, :4]), (keys[:, 4:], values[:, 4:])], span=span)
    return found


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", [name for name in SCORES if name != "location"])  # location has no windows
def test_nobody_overflows(name, autocast):
    attention, *inputs = draw(name)
    expected = contexts(copy.deepcopy(attention).double(), *(x.double() for x in inputs))
    if not autocast:
        attention, inputs = attention.half(), [x.half() for x in inputs]
    inputs = [x.requires_grad_() for x in inputs]
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        found = contexts(attention, *inputs)
    assert len(found) >= 6
    for way, context in found.items():
        assert torch.isfinite(context).all(), way
        if name in ("dot", "scaled"):  # scores that float32 represents, too
            torch.testing.assert_close(context.double(), expected["dense"], rtol=5e-3, atol=5e-3)
    for way in ("chosen", "look", "fold"):
        gradients = torch.autograd.grad(found[way].float().sum(), inputs, allow_unused=True)
        assert all(torch.isfinite(x).all() for x in gradients if x is not None), way


@pytest.mark.parametrize("autocast", [False, True])
def test_location_does_not_overflow(autocast):
    attention, *inputs = draw("location")
    if not autocast:
        attention, inputs = attention.half(), [x.half() for x in inputs]
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        for context in (
            attention(*inputs),
            attention.look(*inputs).context,
            attention.fold(inputs[0], [tuple(inputs[1:])]),
        ):
            assert torch.isfinite(context).all()
    assert float(attention.look(*inputs).scores.detach().abs().max()) > 65504


def test_a_look_shows_scores_that_float16_has_not():
    heads = Heads(16, heads=2).half()
    with torch.no_grad():
        heads.projection.weight.mul_(40)
    look = heads.look(torch.randn(1, 7, 16).half().mul(30), span=Causal())
    assert look.scores.dtype == look.weights.dtype == torch.float32
    assert float(look.scores.detach().abs().max()) > 65504
    assert torch.isfinite(look.scores).all()
    assert look.context.dtype == torch.float16


def test_plain_sums_in_float32_and_rounds_once():
    """Scores exceed float16 while their sum is within it; a sum beyond it is infinite, as in float16."""
    raw = Attention(Dot(), weighting=Plain())
    x, small = torch.full((1, 3, 16), 200.0).half(), torch.full((1, 3, 1), 1e-2).half()
    wanted = 3 * 16 * 200.0**2 * float(small[0, 0, 0])
    for context in (raw(x, x, small), raw.look(x, x, small).context):
        torch.testing.assert_close(context.double(), torch.full((1, 3, 1), wanted).double(), rtol=1e-3, atol=0)
    assert torch.isinf(raw(x, x, x)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["dense", "sdpa", "few-queries"])
def test_a_bias_beyond_the_range_is_not_nothing_at_all(name, dtype):
    """-1e9 on every key gives equal weights: in float16 that number is -inf, and such a row was NaN."""

    class Far(Span):
        def narrow(self, limits, query):
            return limits.with_bias(torch.full((limits.queries, limits.keys), -1e9, device=limits.device))

    x = torch.randn(2, 5, 8).to(dtype)
    with use_backend(name), torch.no_grad():
        context = Attention(Dot(scaled=True))(x, x, span=Far())
    assert torch.isfinite(context).all()
