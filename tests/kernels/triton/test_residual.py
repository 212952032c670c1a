"""A residual with bias, dropout and norm in one kernel: equal to the reference with the kernel's mask."""

import pytest
import torch

pytest.importorskip("triton")

from regard.kernels import reference
from regard.kernels.operations.dropout import residual
from regard.kernels.triton import dropout as triton
from regard.kernels.triton.dropout import Residual, apply_mask, draw_seed

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
P, EPS = 0.3, 1e-5
KEPT = 1 - round(P * 65536) / 65536
SHAPES = [(1, 1), (7, 63), (2, 9, 16), (17, 300)]


def draw(shape, stream=torch.float32, branch=torch.float32, biased=True, normed=True, shifted=True):
    width = shape[-1]
    x = torch.randn(shape, device=DEVICE, dtype=stream)
    y = torch.randn(shape, device=DEVICE, dtype=branch)
    vectors = [torch.randn(width, device=DEVICE) if there else None for there in (biased, normed, normed and shifted)]
    return [None if t is None else t.requires_grad_() for t in (x, y, *vectors)]


def recover(shape, p, seed):
    return apply_mask(torch.ones(shape, device=DEVICE), p, seed, 1.0) > 0 if p else None


def compare(inputs, p, tolerance, use=(True, True), rows=None):
    """Compare results and gradients with the reference in float64; `use` says which results have a gradient."""
    seed = draw_seed(DEVICE)
    x, y, bias, weight, shift = inputs
    found = Residual.apply(x, y, bias, p, weight, shift, EPS, seed if p else None, y.dtype)
    assert found[0].dtype == x.dtype
    exact = [None if t is None else t.detach().double().requires_grad_() for t in inputs]
    keep = recover(x.shape, p, seed)
    expected = reference.residual(*exact[:3], keep, KEPT if p else 1.0, *exact[3:], EPS)
    used = [i for i in range(2) if use[i] and found[i] is not None]
    cotangents = [torch.randn(found[i].shape, device=DEVICE, dtype=found[i].dtype) for i in used]
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=4 * tolerance)
    given = [i for i in range(5) if inputs[i] is not None and (i < 3 or 1 in used)]
    slopes = torch.autograd.grad([found[i] for i in used], [inputs[i] for i in given], cotangents, retain_graph=True)
    again = torch.autograd.grad([found[i] for i in used], [inputs[i] for i in given], cotangents)
    others = torch.autograd.grad(
        [expected[i] for i in used], [exact[i] for i in given], [c.double() for c in cotangents]
    )
    for i, slope, second, other in zip(given, slopes, again, others, strict=True):
        assert slope.dtype == inputs[i].dtype
        assert torch.equal(slope, second)
        scale = max(1.0, float(other.abs().max()))
        assert float((slope.double() - other).abs().max()) <= 4 * tolerance * scale, i
    if p and 1 in given:
        assert not slopes[1][~keep].any()  # both passes use the same mask


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("p", [0.0, P])
def test_it_is_the_reference_with_its_mask(shape, p):
    # The norm of one number is its shift; its slope is pure rounding error.
    compare(draw(shape), p, 1e-5 if shape[-1] > 1 else 1e-2)


@pytest.mark.parametrize("p", [0.0, P])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("normed", "shifted", "use"),
    [
        (False, False, (True, False)),
        *((True, shifted, use) for shifted in (True, False) for use in [(True, True), (True, False), (False, True)]),
    ],
)
def test_every_form_of_it(biased, normed, shifted, use, p):
    compare(draw((9, 20), biased=biased, normed=normed, shifted=shifted), p, 1e-5, use)


@pytest.mark.parametrize("stream", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.0, P])
def test_narrow_branches(stream, p):
    compare(draw((13, 64), stream, torch.bfloat16), p, 8e-3)


def test_the_norm_may_have_another_dtype():
    x, y, bias, weight, shift = draw((5, 16), torch.float32, torch.bfloat16)
    together, normed = Residual.apply(x, y, bias, 0.0, weight, shift, EPS, None, y.dtype)
    assert (together.dtype, normed.dtype) == (torch.float32, torch.bfloat16)
    wide = Residual.apply(x, y, bias, 0.0, weight, shift, EPS, None, torch.float32)[1]
    torch.testing.assert_close(normed.float(), wide, rtol=2**-8, atol=0)  # half of the last of eight bits


def test_nothing_is_left_unwritten(monkeypatch):
    """Fill unwritten memory with NaN."""

    def poison(tensor):
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    empty_like, new_empty = torch.empty_like, torch.Tensor.new_empty
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: poison(empty_like(*a, **k)))
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: poison(new_empty(*a, **k)))
    inputs = draw((17, 63))
    found = Residual.apply(*inputs[:3], P, *inputs[3:], EPS, draw_seed(DEVICE), torch.float32)
    for tensor in (*found, *torch.autograd.grad([f.sum() for f in found], inputs)):
        assert torch.isfinite(tensor).all()


def test_rows_do_not_know_each_other():
    inputs, seed = draw((20, 40)), draw_seed(DEVICE)
    whole = Residual.apply(*inputs[:3], P, *inputs[3:], EPS, seed, torch.float32)
    part = Residual.apply(inputs[0][:11], inputs[1][:11], inputs[2], P, *inputs[3:], EPS, seed, torch.float32)
    assert all(torch.equal(one[:11], other) for one, other in zip(whole, part, strict=True))


def test_another_seed_drops_others_and_none_draws_one():
    inputs = draw((20, 40))
    one, two, three = (
        Residual.apply(*inputs[:3], 0.5, *inputs[3:], EPS, seed, torch.float32)[0]
        for seed in (draw_seed(DEVICE), None, None)
    )
    assert not torch.equal(one, two)
    assert not torch.equal(two, three)


def test_no_rows():
    inputs = draw((0, 8))
    found = Residual.apply(*inputs[:3], P, *inputs[3:], EPS, None, torch.float32)
    for slope in torch.autograd.grad([f.sum() for f in found], inputs):
        assert not slope.any()


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 100, 512, 1024, 2048])
@pytest.mark.parametrize("stream", [torch.float32, torch.bfloat16])
def test_real_sizes(stream, width):
    compare(draw((3001, width), stream, torch.bfloat16), 0.3, 1e-2)


@pytest.mark.gpu
def test_a_captured_graph_draws_anew_and_equals_eager_without_dropout():
    inputs = draw((4096, 512), torch.bfloat16, torch.bfloat16)

    def step(p):
        found = residual(*inputs[:3], p, *inputs[3:], seed=draw_seed(DEVICE))
        slopes = torch.autograd.grad([f.float().square().sum() for f in found], inputs)
        return *(f.detach() for f in found), *slopes

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for p in (0.0, 0.5):
        with torch.cuda.stream(stream):
            eager = [t.detach().clone() for t in step(p)]
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            results = step(p)
        seen = []
        for _ in range(2):
            for result in results:
                result.detach().fill_(float("nan"))
            graph.replay()
            seen.append([result.detach().clone() for result in results])
        for one, two, plain in zip(*seen, eager, strict=True):
            assert torch.isfinite(one).all()
            assert torch.equal(one, two) == (p == 0)
            assert p or torch.equal(one, plain)


@pytest.mark.parametrize("rows", [0, 1, 8, 9, 3001, 100_000])
@pytest.mark.parametrize("width", [1, 64, 512, 8192])
def test_every_row_has_a_program(rows, width):
    tile, warps = triton.across_row(width, 4)
    assert tile >= width
    assert 1 <= warps <= 16
    share, shares = triton.share_rows(rows, warps, 132)
    assert 8 * share * (shares - 1) < max(1, rows) <= 8 * share * shares
    assert shares <= 132 * max(1, triton.WARPS // warps)
