"""Local-p in Triton equals the reference: contexts and every gradient, the centre's too; only windows are touched."""

from functools import partial

import interpreted  # noqa: F401
import pytest
import torch
from kernels import cases
from kernels.cases import call_of

pytest.importorskip("triton")
from regard.attention import Additive, Attention, General, Lengths, Predictive
from regard.errors import BackendError
from regard.kernels import backends
from regard.kernels.backends import BILINEAR, CENTRES, SOFTMAX, WINDOW
from regard.kernels.planning import Request
from regard.kernels.span_limits import Window
from regard.kernels.triton import window as predicted

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")  # interpreted
SCALE = 0.3


def draw(batch, n, m, d, dv, dtype=torch.float32, heads=None, scored="additive"):
    tensors = [torch.randn(*batch, size, width, device=DEVICE) for size, width in ((n, d), (m, d), (m, dv))]
    centre = torch.rand(*batch, n, device=DEVICE) * m
    vector = torch.randn((d,) if heads is None else (heads, d), device=DEVICE)
    inputs = [x.to(dtype) for x in tensors] + [centre] + ([vector.to(dtype)] if scored == "additive" else [])
    return [x.requires_grad_() for x in inputs]


def window_call(inputs, radius=2, sigma=1.0, **options):
    query, keys, values, centre, *vector = inputs
    window = Window(radius, centre=centre, sigma=sigma)
    return call_of(query, keys, values, *vector, scale=1.0 if vector else SCALE, window=window, **options)


results = partial(cases.results, window_call)


def check(inputs, tolerance=1e-3 if CUDA else 2e-5, **options):
    cases.check(window_call, predicted.attend, inputs, tolerance, **options)


def rows(*numbers):
    return torch.tensor(numbers, device=DEVICE)


@pytest.mark.parametrize("scored", ["bilinear", "additive"])
@pytest.mark.parametrize("shape", [((), 1, 1, 1, 1), ((2,), 7, 13, 5, 3), ((1,), 3, 63, 33, 17), ((1,), 35, 5, 7, 130)])
def test_every_size(shape, scored):
    check(draw(*shape, scored=scored))


LIMITS = {
    "lengths": {"lengths": rows(20, 0)},
    "causal": {"causal": 3},
    "causal, a start a row": {"causal": rows(-3, 9), "lengths": rows(11, 20)},
    "no Gaussian": {"sigma": None},
    "temperature": {"temperature": 0.4},
    "wider than the keys": {"radius": 40, "sigma": 20.0},
}


@pytest.mark.parametrize("scored", ["bilinear", "additive"])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
def test_every_limit(limits, scored):
    check(draw((2,), 6, 20, 5, 4, scored=scored), **limits)


def test_heads():
    check(draw((2, 3), 4, 9, 5, 4, heads=3), lengths=torch.randint(0, 10, (2, 3), device=DEVICE))


def test_centres_on_whole_numbers_and_outside():
    """A key at exactly the radius is inside; a centre may lie beyond the last key."""
    inputs = draw((1,), 6, 20, 5, 4, scored="bilinear")
    with torch.no_grad():
        inputs[3].copy_(torch.tensor([[0.0, 3.0, 19.0, 20.0, 25.0, -4.0]]))
    check(inputs)


def test_only_the_window_is_touched():
    inputs = draw((1,), 2, 40, 5, 4, scored="bilinear")
    with torch.no_grad():
        inputs[3].copy_(torch.tensor([[10.3, 12.9]]))
        before = predicted.attend(window_call(inputs))
        for x in inputs[1:3]:
            x[:, :8] = torch.nan
            x[:, 16:] = torch.nan
        assert torch.equal(predicted.attend(window_call(inputs)), before)


def test_the_same_bits_twice():
    inputs = draw((1,), 17, 18, 5, 4)
    for one, other in zip(*(results(predicted.attend, inputs) for _ in range(2)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    inputs = draw((1,), 7, 13, 16, 16, dtype=dtype)
    assert predicted.attend(window_call(inputs)).dtype == dtype
    check(inputs, tolerance=3e-2)


def test_nothing_at_all():
    for n, m in ((0, 4), (4, 0)):
        context, *gradients = results(predicted.attend, draw((2,), n, m, 5, 3))
        assert context.shape == (2, n, 3)
        assert not any(x.any() for x in (context, *gradients))


def test_the_operation_says_its_shapes_to_a_compiler():
    query, keys, values, centre, vector = (x.detach() for x in draw((2,), 3, 4, 5, 6))
    for kept in (True, False):
        arguments = (query, keys, values, centre, vector[None], None, None, predicted.NONE, 2, 0.5, 1.0, kept)
        torch.library.opcheck(predicted.predicted, arguments, test_utils="test_faketensor")


def test_a_wide_radius_is_refused_in_plain_words():
    sizes = {"rows": 2, "queries": 64, "keys": 640, "width": 8, "value width": 8, "radius": backends.PREDICTED_RADIUS}
    request = Request("cuda", (torch.float32,), (BILINEAR, SOFTMAX, WINDOW, CENTRES), sizes)
    assert backends.choose(request).name == "triton"
    wide = request._replace(sizes={**sizes, "radius": backends.PREDICTED_RADIUS + 1})
    with backends.use_backend("triton"), pytest.raises(BackendError, match="up to a radius of 126"):
        backends.choose(wide)
    assert backends.choose(wide).name == "window"


@pytest.mark.gpu
@pytest.mark.parametrize("score", [lambda: Additive(32, 32, 64), lambda: General(32, 32)])
def test_attention_takes_it(score):
    attention = Attention(score(), span=Predictive(32, 6)).cuda()
    query, keys = torch.randn(2, 100, 32, device="cuda"), torch.randn(2, 90, 32, device="cuda")
    span = Lengths([90, 41])
    assert attention.backend(query, keys, span=span) == "triton"
    with backends.use_backend("dense"):
        dense = attention(query, keys, span=span)
    torch.testing.assert_close(attention(query, keys, span=span), dense, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("radius", [0, 1, 10, 62, backends.PREDICTED_RADIUS])
def test_a_window_fits_one_program(radius):
    cut = predicted.blocks(radius)
    assert cut["BW"] >= predicted.window_size(radius) == 2 * radius + 3
    assert cut["BW"] & (cut["BW"] - 1) == 0
    assert cut["BW"] <= 256
    assert 16 <= cut["BD"] <= 128
