"""The table chooses the backend of a call; a forced one that cannot serve gives the reason."""

import contextlib
import math
import random
import re
import threading
from unittest import mock

import pytest
import torch
from draws import SEED
from hypothesis import HealthCheck, given, settings
from kernels.cases import TOLERANCE, calls, evaluate, recorded

from regard.attention import (
    Additive,
    Attention,
    Causal,
    Cosine,
    Dot,
    General,
    Gumbel,
    Hard,
    Lengths,
    Location,
    Mask,
    Monotonic,
    Packed,
    Plain,
    Predictive,
    Span,
    Sparsemax,
    use_backend,
)
from regard.errors import ArgumentError, BackendError
from regard.kernels import backends, planning, triton
from regard.kernels.operations import additive as chunked
from regard.kernels.operations import window as window_cpu
from regard.kernels.planning import Request
from regard.kernels.span_limits import Window

TABLE = {
    "scaled dot": (Attention(Dot(scaled=True)), None, "sdpa"),
    "general, causal": (Attention(General(8, 8)), Causal(), "sdpa"),
    "cosine, lengths": (Attention(Cosine()), Lengths([3, 200]), "sdpa"),
    "dot, a mask": (Attention(Dot()), Mask(torch.ones(200, 200, dtype=torch.bool)), "sdpa"),
    "local-m": (Attention(Dot()), Monotonic(10), "window"),
    "local-p": (Attention(General(8, 8), span=Predictive(8, 10)), Lengths([200, 50]), "window"),
    "additive local-p": (Attention(Additive(8, 8, hidden=16), span=Predictive(8, 10)), None, "window"),
    "a window not much smaller than the sentence": (Attention(Dot()), Monotonic(25), "sdpa"),
    "the same predicted": (Attention(Dot(), span=Predictive(8, 25)), None, "window"),
    "a window as wide as the sentence": (Attention(Dot()), Monotonic(150), "sdpa"),
    "additive": (Attention(Additive(8, 8, hidden=16)), Lengths([200, 7]), "chunked"),
    "additive, sparsemax": (Attention(Additive(8, 8, hidden=16), weighting=Sparsemax()), None, "chunked"),
    "location": (Attention(Location(8, 200)), None, "dense"),
    "hard": (Attention(Dot(), weighting=Hard()), None, "dense"),
    "gumbel": (Attention(Dot(), weighting=Gumbel()), None, "dense"),
    "plain": (Attention(Dot(), weighting=Plain()), None, "dense"),
}


@pytest.mark.parametrize("name", ["sdpa", "window", "chunked"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=calls(torch.float64, torch.float32, torch.bfloat16))
def test_a_backend_equals_dense_or_says_why_not(name, drawn):
    attention, inputs, span = drawn.build()
    cotangent = torch.randn_like(attention(*inputs, span=span))
    with use_backend("dense"), recorded() as ran:
        expected = evaluate(attention, inputs, span, cotangent)
    assert ran == ["dense"]
    small = mock.patch.object(chunked, "CHUNK", 64)  # several chunks, of queries and of rows
    with use_backend(name), recorded() as ran, small, mock.patch.object(window_cpu, "MANY", 8):
        try:
            found = evaluate(attention, inputs, span, cotangent)
        except BackendError:
            assert not ran
            return
        assert attention.backend(*inputs, span=span) == name
    assert ran == [name]
    tolerance = TOLERANCE[inputs[0].dtype]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(
            one, other, rtol=tolerance, atol=tolerance * max(1.0, float(other.detach().abs().max()))
        )


@pytest.mark.parametrize("row", TABLE)
def test_the_table_says_who_serves_what_on_a_cpu(row):
    attention, span, name = TABLE[row]
    x = torch.randn(2, 200, 8)
    assert attention.backend(x, x, x, span=span) == name
    with recorded() as ran:
        attention(x, x, x, span=span)
    assert ran == [name]


def test_a_small_additive_call_is_plain():
    x = torch.randn(1, 3, 8)
    assert Attention(Additive(8, 8, hidden=16)).backend(x, x) == "dense"


def test_packed_goes_through_padding_on_a_cpu():
    x, attention, packed = torch.randn(37, 4), Attention(Dot()), Packed([0, 17, 37])
    assert attention.backend(x, x, span=packed) == "sdpa"
    with use_backend("dense"):
        assert attention.backend(x, x, span=packed) == "dense"
    with use_backend("varlen"), pytest.raises(BackendError, match="varlen.*it runs on cuda, not on cpu"):
        attention(x, x, span=packed)


def test_a_few_queries_are_served_by_two_products():
    attention, keys, values = Attention(Dot(scaled=True)), torch.randn(3, 9, 8), torch.randn(3, 9, 5)
    for count, served in ((1, "sdpa"), (2, "few-queries"), (16, "few-queries"), (17, "sdpa")):
        query = torch.randn(3, count, 8)
        for span in (None, Lengths([9, 4, 0]), Mask(torch.rand(3, count, 9) < 0.5)):
            assert attention.backend(query, keys, values, span=span) == served
            with use_backend("dense"):
                wanted = attention(query, keys, values, span=span)
            torch.testing.assert_close(attention(query, keys, values, span=span), wanted)
        assert attention.backend(query.requires_grad_(), keys, values) == "sdpa"  # a gradient needs the fused one
    # Values may have rows that queries and keys lack.
    found = attention(torch.randn(4, 8), torch.randn(6, 8), torch.randn(3, 6, 5), span=Lengths([1, 2, 3]))
    assert found.shape == (3, 4, 5)


def test_a_forced_backend_ends_with_its_block_and_stays_in_its_thread():
    x, attention = torch.randn(1, 30, 8), Attention(Dot())
    elsewhere = []
    with use_backend("dense"):
        with use_backend("sdpa"):
            assert attention.backend(x, x) == "sdpa"
        assert attention.backend(x, x) == "dense"
        thread = threading.Thread(target=lambda: elsewhere.append(attention.backend(x, x)))
        thread.start()
        thread.join()
    assert elsewhere == ["sdpa"]
    with pytest.raises(RuntimeError), use_backend("dense"):
        raise RuntimeError
    assert attention.backend(x, x) == "sdpa"


@pytest.mark.parametrize(("old", "name"), backends.ALIASES.items())
def test_old_names_are_still_taken(old, name):
    assert {*backends.ALIASES} == {"step", "short", "few", "few-additive"}
    with use_backend(old):
        assert backends.forced_backend() == name
    x = torch.randn(3, 5, 8)
    with use_backend("few"):
        assert Attention(Dot()).backend(x, x) == "few-queries"


def test_an_unknown_backend_is_named():
    with (
        pytest.raises(ArgumentError, match="'fast' is not a backend; choose one of .*varlen, flex"),
        use_backend("fast"),
    ):
        pass


@pytest.mark.parametrize("weighting", [Hard(), Sparsemax(), Plain()])
def test_a_forced_backend_never_falls_back(weighting):
    x = torch.randn(1, 3, 8)
    with use_backend("sdpa"), recorded() as ran, pytest.raises(BackendError, match=f"not serve {weighting.name}"):
        Attention(Dot(), weighting=weighting)(x, x)
    assert not ran


# ---- the table as a list of supported features


def requests(count, seed):
    """Draw requests of every kind, on devices that need not exist."""
    rng = random.Random(seed)
    known = sorted({feature for backend in backends.BACKENDS for feature in backend.features or ()})
    dtypes = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    for _ in range(count):
        row = rng.choice(backends.BACKENDS.rows)
        if rng.random() < 0.5:  # the features of one table row, so that each occurs often
            own = sorted(row.features or known)
            wanted = {backends.SOFTMAX, *rng.sample(own, rng.randint(0, len(own)))}
            score = rng.choice([each for each in SCORES if each in own])
            device, dtype = rng.choice(row.devices or ("cpu",)), rng.choice(row.dtypes or dtypes)
        else:
            wanted = {backends.SOFTMAX, *rng.sample(known, rng.choice([0, 0, 1, 1, 2, 3]))}
            score = rng.choice(SCORES)
            device, dtype = rng.choice(["cpu", "cuda", "cuda", "mps"]), rng.choice(dtypes)
        sizes = {name: rng.choice([0, 1, 8, 16, 17, 64, 128, 129, 256, 4000]) for name in SIZES}
        if rng.random() < 0.5:
            sizes["value width"] = sizes["width"]
        yield Request(device, (dtype,), tuple(sorted({score, *wanted.difference(SCORES)})), sizes)


SCORES = backends.BILINEAR, backends.ADDITIVE  # a call has one
SIZES = {"rows": 8, "queries": 5, "keys": 40, "width": 64, "value width": 64, "radius": 0}


def test_what_no_row_knows_only_dense_serves():
    """A feature added to calls later is also served by dense alone, until a row lists it."""
    served = set()
    for request in requests(4000, SEED):
        for backend in backends.BACKENDS:
            assert backend.serves(request) == (backend.refusal(request) is None)
            if backend.serves(request):
                served.add(backend.name)
            strange = request._replace(features=(*request.features, "something new"))
            assert backend.serves(strange) == (backend.name == "dense")
            if backend.name != "dense":
                assert re.search(r"it does not serve .*something new", backend.refusal(strange))
        assert backends.choose(strange).name == "dense"
    assert served == {*backends.NAMES}


def test_what_is_remembered_is_what_the_table_says():
    """Sizes that are cached as one class all have the same answer."""
    backends.BACKENDS.known.clear()
    for request in requests(6000, SEED):
        plain = request._replace(features=tuple(each for each in request.features if each in (B, S)))
        for each in (request, plain):
            rng = random.Random(str(each))
            sizes = {name: max(1, size + rng.choice([-1, 0, 1])) for name, size in each.sizes.items()}
            for again in (each, each._replace(sizes=sizes), each):
                assert backends.choose(again) is backends.BACKENDS.ask(again)
    assert 0 < len(backends.BACKENDS.known) <= planning.MOST_PLANS


def test_plans_are_bounded(monkeypatch):
    monkeypatch.setattr(planning, "MOST_PLANS", 8)
    backends.BACKENDS.known.clear()
    for request in requests(200, SEED):
        backends.choose(request)
        assert len(backends.BACKENDS.known) <= 8


def test_nothing_is_remembered_while_compiling(monkeypatch):
    backends.BACKENDS.known.clear()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for request in requests(20, SEED):
        backends.choose(request)
    assert not backends.BACKENDS.known


def test_rows_list_features_that_calls_have():
    words = {value for name, value in vars(backends).items() if name.isupper() and isinstance(value, str)}
    words |= {*backends.WEIGHTS.values()}
    for backend in backends.BACKENDS:
        assert (backend.features is None) == (backend.name == "dense")
        assert backend.features is None or backend.features <= words
        assert {*(backend.most or ())} <= {*SIZES}
    assert backends.BACKENDS.rows[-1].name == "dense"


B, A, S = backends.BILINEAR, backends.ADDITIVE, backends.SOFTMAX
HALF, SINGLE, DOUBLE = torch.bfloat16, torch.float32, torch.float64
ON_CUDA = {
    "a decoding step": ((B, S, backends.LENGTHS), HALF, {}, "decode-step"),
    "a step in single precision": ((B, S), SINGLE, {}, "decode-step"),
    "a step in double precision": ((B, S), DOUBLE, {}, "sdpa"),
    "a step of wide heads": ((B, S), HALF, {"width": 264, "value width": 264}, "sdpa"),
    "a short sentence": ((B, S, backends.LENGTHS), HALF, {"queries": 40}, "one-tile"),
    "a short sentence in training": ((B, S, backends.GRADIENT, backends.DROPOUT), HALF, {}, "one-tile"),
    "128 keys, nothing else": ((B, S), HALF, {"queries": 128, "keys": 128}, "sdpa"),
    "128 keys in training": ((B, S, backends.GRADIENT), HALF, {"queries": 128, "keys": 128}, "one-tile"),
    "129 keys": ((B, S, backends.GRADIENT), HALF, {"queries": 129, "keys": 129}, "sdpa"),
    "values of another width": ((B, S, backends.GRADIENT), HALF, {"value width": 32}, "sdpa"),
    "packed": ((B, S, backends.GRADIENT, backends.PACKED), HALF, {}, "one-tile"),
    "packed, long": ((B, S, backends.PACKED), HALF, {"keys": 300}, "varlen"),
    "packed, long, causal": ((B, S, backends.PACKED, backends.CAUSAL), HALF, {"keys": 300}, "varlen"),
    "packed, long, across": ((B, S, backends.PACKED, backends.PACKED_KEYS), HALF, {"keys": 300}, "varlen"),
    "packed, long, causal, across": (
        (B, S, backends.PACKED, backends.PACKED_KEYS, backends.CAUSAL),
        HALF,
        {"keys": 300},
        "dense",  # it does not serve packed calls directly: they are padded
    ),
    "packed beside another span": ((B, S, backends.PACKED, backends.BESIDE_PACKED), HALF, {}, "dense"),
    "packed in odd widths": ((B, S, backends.PACKED), HALF, {"keys": 300, "width": 65, "value width": 65}, "dense"),
    "a window": ((B, S, backends.WINDOW), SINGLE, {"queries": 40, "radius": 3}, "flex"),
    "a window a row": ((B, S, backends.WINDOW, backends.WINDOW_ROWS), SINGLE, {"queries": 40, "radius": 3}, "sdpa"),
    "a window of odd widths": ((B, S, backends.WINDOW), SINGLE, {"width": 60, "radius": 3, "keys": 90}, "window"),
    "ALiBi": ((B, S, backends.ALIBI, backends.GRADIENT), SINGLE, {"queries": 40}, "flex"),
    "ALiBi a row": ((B, S, backends.ALIBI, backends.ALIBI_ROWS), SINGLE, {"queries": 40}, "sdpa"),
    "ALiBi twice": ((B, S, backends.ALIBI, backends.ALIBIS), SINGLE, {"queries": 40}, "sdpa"),
    "local-p": ((B, S, backends.WINDOW, backends.CENTRES, backends.GAUSSIAN), SINGLE, {"radius": 5}, "triton"),
    "predicted centres without a Gaussian": (
        (B, S, backends.WINDOW, backends.CENTRES),
        SINGLE,
        {"radius": 5},
        "triton",
    ),
    "additive local-p": ((A, S, backends.WINDOW, backends.CENTRES, backends.GAUSSIAN), HALF, {"radius": 5}, "triton"),
    "local-p and a mask": (
        (B, S, backends.WINDOW, backends.CENTRES, backends.GAUSSIAN, backends.MASK),
        SINGLE,
        {"radius": 5},
        "dense",
    ),
    "additive": ((A, S, backends.GRADIENT, backends.LENGTHS), SINGLE, {"queries": 40}, "triton"),
    "additive, one query in training": (
        (A, S, backends.GRADIENT),
        SINGLE,
        {"queries": 1, "keys": 5, "rows": 2},
        "dense",
    ),
    "additive step": ((A, S, backends.LENGTHS), HALF, {}, "few-queries-additive"),
    "additive with a bias": ((A, S, backends.BIAS), SINGLE, {"queries": 100, "keys": 100}, "chunked"),
    "additive in double precision": ((A, S), DOUBLE, {"queries": 100, "keys": 100}, "chunked"),
    "additive, sparsemax": ((A, "sparsemax"), SINGLE, {"queries": 100, "keys": 100}, "chunked"),
    "a learned bias": ((B, S, backends.BIAS, backends.BIAS_GRADIENT), SINGLE, {"queries": 40}, "dense"),
    "a gate": ((B, S, backends.GATE), SINGLE, {"queries": 40}, "dense"),
}


@pytest.mark.parametrize("row", ON_CUDA)
def test_the_table_says_who_serves_what_on_cuda(row, monkeypatch):
    wanted, dtype, sizes, name = ON_CUDA[row]
    monkeypatch.setattr(triton, "INSTALLED", True)
    request = Request("cuda", (dtype,), wanted, {**SIZES, **sizes})
    assert backends.choose(request).name == name
    assert backends.packed_natively(request) == (name in backends.NATIVE)


def test_without_triton_torch_serves(monkeypatch):
    monkeypatch.setattr(triton, "INSTALLED", False)
    for wanted, name in (((B, S), "sdpa"), ((A, S), "dense"), ((B, S, backends.WINDOW, backends.CENTRES), "window")):
        request = Request("cuda", (HALF,), wanted, {**SIZES, "radius": 5})
        assert backends.choose(request).name == name
        with use_backend("one-tile"), pytest.raises(BackendError, match="Triton is not installed"):
            backends.choose(request)


# ---- custom windows


class Around(Span):
    """A window around given centres, with or without a Gaussian."""

    def __init__(self, **window):
        self.window = window

    def narrow(self, limits, query):
        return limits.with_window(Window(2, **self.window))


@pytest.mark.parametrize("score", [Dot, lambda: Additive(8, 8, hidden=5)])
@pytest.mark.parametrize("window", [{"centre": torch.rand(2, 33) * 40}, {"sigma": 1.5}, {"start": 3, "sigma": 0.5}])
def test_every_backend_that_takes_a_window_of_ones_own_is_right(window, score):
    """FlexAttention supports no centres, and tiles no Gaussian."""
    query, keys, attention, ran = torch.randn(2, 33, 8), torch.randn(2, 40, 8), Attention(score()), []
    with torch.no_grad():
        with use_backend("dense"):
            wanted = attention(query, keys, span=Around(**window))
        for name in backends.NAMES:
            with use_backend(name), contextlib.suppress(BackendError):
                torch.testing.assert_close(attention(query, keys, span=Around(**window)), wanted)
                ran.append(name)
    assert {"window", "dense"} <= {*ran}
    assert "flex" not in ran


@pytest.mark.parametrize("name", ["dense", "sdpa", "window"])
def test_dropout_falls_on_weights_that_are_not_renormalised(name):
    """With values of one, a context is the sum of the dropped weights: 1 on average, with the variance of the draw."""
    torch.manual_seed(0)
    keys, p = 100, 0.3
    attention = Attention(Dot(), dropout=p)
    query, values = torch.zeros(2000, 1, 4), torch.ones(2000, keys, 1)
    span = Monotonic(keys) if name == "window" else None
    with use_backend(name):
        sums = attention(query, torch.zeros(2000, keys, 4), values, span=span).flatten()
        whole = attention.eval()(query, torch.zeros(2000, keys, 4), values, span=span).flatten()
    torch.testing.assert_close(whole, torch.ones(2000))
    deviation = math.sqrt(p / (1 - p) / keys)
    assert abs(float(sums.mean()) - 1) < 5 * deviation / math.sqrt(2000)
    assert abs(float(sums.std()) / deviation - 1) < 0.15
