"""Dropout that redraws its mask: equal to the reference with the kernel's mask, forward and backward."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")
from regard.kernels import reference
from regard.kernels.triton.dropout import activation_dropout, apply_mask, draw_seed, embed, odds

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(1, 1), (7, 63), (2, 9, 16), (17, 300), (9, 1030), (0, 3)]
ACTIVATIONS = {
    name: (partial(activation_dropout, name=name), plain)
    for name, plain in {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}.items()
}
relu_dropout = ACTIVATIONS["relu"][0]
P = 0.3
KEPT = 1 - round(P * 65536) / 65536
TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.bfloat16: {"rtol": 0.016, "atol": 1e-2},
}


def recover(shape, p, seed):
    """Return the mask of the numbers that the kernel keeps."""
    return apply_mask(torch.ones(shape, device=DEVICE), p, seed, 1.0) > 0


def wide(*tensors):
    return [t.detach().double().requires_grad_() for t in tensors]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("p", [0.0, P])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_dropped_is_the_reference_with_its_mask(name, shape, biased, p, dtype):
    activate, plain = ACTIVATIONS[name]
    seed, x = draw_seed(DEVICE), torch.randn(shape, device=DEVICE, dtype=dtype, requires_grad=True)
    bias = torch.randn(shape[-1], device=DEVICE, requires_grad=True) if biased else None
    keep = recover(shape, p, seed) if p else torch.ones(shape, device=DEVICE, dtype=torch.bool)
    cotangent = torch.randn(shape, device=DEVICE, dtype=dtype)
    exact, *exact_bias = wide(x, *([bias] if biased else []))
    found = activate(x, bias, p, seed if p else None)
    expected = reference.dropout(plain(exact + sum(exact_bias)), keep, KEPT if p else 1.0)
    torch.testing.assert_close(found.double(), expected, **TOLERANCE[dtype])
    slopes = torch.autograd.grad(found, [x, *([bias] if biased else [])], cotangent)
    exact_slopes = torch.autograd.grad(expected, [exact, *exact_bias], cotangent.double())
    for slope, other in zip(slopes, exact_slopes, strict=True):
        torch.testing.assert_close(slope.double(), other, rtol=TOLERANCE[dtype]["rtol"], atol=2e-2)
    assert [slope.dtype for slope in slopes] == [dtype, *[torch.float32] * biased]


def test_no_number_stays_none():
    x = torch.tensor([[float("nan"), 1.0, -1.0, float("inf")]], device=DEVICE, requires_grad=True)
    found = relu_dropout(x, None, 0.0, None)
    assert torch.equal(found.isnan(), x.isnan())
    found[0, 1:].sum().backward()
    assert x.grad.tolist() == [[0, 1, 0, 1]]


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_smooth_activations_far_out(name):
    """Where a factor is 0 or 1 in float32, results and slopes are finite; NaN stays NaN."""
    activate, plain = ACTIVATIONS[name]
    x = torch.tensor([[-200.0, -30.0, -6.0, -0.0, 6.0, 30.0, 200.0, float("nan")]], device=DEVICE, requires_grad=True)
    exact = x.detach().double().requires_grad_()
    found, expected = activate(x, None, 0.0, None), plain(exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    (slope,) = torch.autograd.grad(found, x, torch.ones_like(x))
    (wanted,) = torch.autograd.grad(expected, exact, torch.ones_like(exact))
    torch.testing.assert_close(slope.double(), wanted, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5])
def test_the_share_is_what_was_asked(p):
    rows, width = 250, 1000
    keep = recover((rows, width), p, draw_seed(DEVICE)).double()
    kept, count = 1 - round(p * 65536) / 65536, rows * width
    assert abs(float(keep.mean()) - kept) < 5 * math.sqrt(p * (1 - p) / count)
    # Each of a group's eight rows uses other bits: check each share.
    for k in range(8):
        some = keep[k::8]
        assert abs(float(some.mean()) - kept) < 5 * math.sqrt(p * (1 - p) / some.numel())


def correlation(a, b):
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).mean() / (a.square().mean() * b.square().mean()).sqrt())


def test_draws_do_not_know_each_other():
    rows, width = 256, 512
    seed = draw_seed(DEVICE)
    keep = recover((rows, width), 0.5, seed).double()
    limit = 5 / math.sqrt(rows * width)
    for down in (1, 2, 4, 7, 8, 16):
        assert abs(correlation(keep[down:], keep[:-down])) < 1.1 * limit, down
    for across in (1, 2, 8, 32, 64):
        assert abs(correlation(keep[:, across:], keep[:, :-across])) < 1.2 * limit, across
    for other in (seed + 1, seed ^ (1 << 40), draw_seed(DEVICE)):
        assert abs(correlation(keep, recover((rows, width), 0.5, other).double())) < limit


def test_kept_numbers_are_scaled_exactly():
    for p in (0.1, 0.25, 0.5):
        limit, scale = odds(p)
        found = apply_mask(torch.full((64, 64), 3.0, device=DEVICE), p, draw_seed(DEVICE), scale)
        assert set(found.unique().tolist()) == {0.0, float(torch.tensor(3.0) * torch.tensor(scale))}
        assert limit == round(p * 65536)
    assert not recover((64, 64), 1.0, draw_seed(DEVICE)).any()


def test_the_mask_hangs_on_the_seed_and_the_place_alone():
    seed = draw_seed(DEVICE)
    keep = recover((40, 70), P, seed)
    assert torch.equal(recover((40, 70), P, seed.clone()), keep)
    assert torch.equal(recover((21, 70), P, seed), keep[:21])
    assert torch.equal(recover((4, 10, 70), P, seed).view(40, 70), keep)
    x = torch.rand(40, 70, device=DEVICE) + 0.1
    for activate, _ in ACTIVATIONS.values():
        assert torch.equal(activate(x, None, P, seed) > 0, keep)


def test_torchs_generator_repeats_the_seeds():
    torch.manual_seed(3)
    first, second = draw_seed(DEVICE), draw_seed(DEVICE, 5)
    torch.manual_seed(3)
    assert torch.equal(draw_seed(DEVICE), first)
    assert torch.equal(draw_seed(DEVICE, 5), second)
    assert len(set(second.tolist())) == 5
    keep = recover((9, 9), 0.5, second[3:4])  # a seed from a larger tensor, at an unaligned address
    assert torch.equal(keep, recover((9, 9), 0.5, second[3:4].clone()))


@pytest.mark.parametrize("p", [0.0, P])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (3, 7), (0,)])
def test_embed_is_its_parts(shape, dtype, p):
    seed, scale = draw_seed(DEVICE), 3.7
    weight = torch.randn(11, 63, device=DEVICE, requires_grad=True)
    table = torch.randn(20, 63, device=DEVICE)
    ids, positions = torch.randint(11, shape, device=DEVICE), torch.randint(20, shape, device=DEVICE)
    keep = recover((*shape, 63), p, seed) if p else torch.ones(*shape, 63, dtype=torch.bool, device=DEVICE)
    (exact,) = wide(weight)
    expected = F.embedding(ids, exact) * scale + table.double()[positions]
    expected = reference.dropout(expected, keep, KEPT if p else 1.0)
    found = embed(ids, weight, scale, positions, p, seed, table=table, dtype=dtype)
    assert found.dtype == (dtype or torch.float32)
    tolerance = TOLERANCE[found.dtype]
    torch.testing.assert_close(found.double(), expected, rtol=tolerance["rtol"], atol=3 * tolerance["atol"])
    cotangent = torch.randn(found.shape, device=DEVICE, dtype=found.dtype)
    (slope,) = torch.autograd.grad(found, weight, cotangent, retain_graph=True)
    torch.testing.assert_close(
        slope.double(), torch.autograd.grad(expected, exact, cotangent.double())[0], rtol=1e-5, atol=1e-4
    )
    assert torch.equal(torch.autograd.grad(found, weight, cotangent)[0], slope)


def test_a_token_that_is_not_in_the_table_gives_nan_and_reads_nothing():
    weight, table = torch.zeros(5, 8, device=DEVICE), torch.zeros(4, 8, device=DEVICE)
    ids, positions = (
        torch.tensor([0, 5, -1, 4, 4, 2**31], device=DEVICE),
        torch.tensor([0, 1, 1, 4, 3, 0], device=DEVICE),
    )
    found = embed(ids, weight, 1.0, positions, 0.0, None, table=table)
    assert found.isnan().all(-1).tolist() == [False, True, True, True, False, True]


def test_strides_do_not_matter():
    seed, x = draw_seed(DEVICE), torch.randn(7, 5, 3, device=DEVICE).transpose(0, 2)
    assert torch.equal(apply_mask(x, P, seed, 2.0), apply_mask(x.contiguous(), P, seed, 2.0))
    cotangent = torch.randn((), device=DEVICE).expand_as(x)
    for activate, _ in ACTIVATIONS.values():
        assert torch.equal(activate(x, None, P, seed), activate(x.contiguous(), None, P, seed))
        y = x.clone().requires_grad_()
        one, other = (
            torch.autograd.grad(activate(y, None, P, seed), y, c)[0] for c in (cotangent, cotangent.contiguous())
        )
        assert torch.equal(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_large_and_deterministic(name):
    activate, plain = ACTIVATIONS[name]
    x = torch.randn(25_000, 2048, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    bias, seed = torch.randn(2048, device=DEVICE, requires_grad=True), draw_seed(DEVICE)
    keep, cotangent = recover(x.shape, 0.1, seed), torch.randn_like(x)
    found = activate(x, bias, 0.1, seed)
    slopes = torch.autograd.grad(found, [x, bias], cotangent, retain_graph=True)
    again = torch.autograd.grad(found, [x, bias], cotangent)
    assert all(torch.equal(a, b) for a, b in zip(slopes, again, strict=True))
    kept = 1 - round(0.1 * 65536) / 65536
    summed = (x.detach().double() + bias.detach()).requires_grad_()
    expected = torch.where(keep, plain(summed) / kept, 0)
    torch.testing.assert_close(found.double(), expected, rtol=0.01, atol=1e-5)
    (exact,) = torch.autograd.grad(expected, summed, cotangent.double())
    torch.testing.assert_close(slopes[0].double(), exact, rtol=0.01, atol=1e-5)
    torch.testing.assert_close(slopes[1].double(), exact.sum(0), rtol=1e-4, atol=1e-2)


@pytest.mark.gpu
def test_a_captured_graph_draws_anew_at_each_replay():
    x = torch.ones(4096, 512, device=DEVICE, requires_grad=True)
    weight = torch.randn(100, 512, device=DEVICE, requires_grad=True)
    table, ids = torch.randn(50, 512, device=DEVICE), torch.randint(50, (4096,), device=DEVICE)
    bias = torch.full((512,), 1.0, device=DEVICE, requires_grad=True)

    def step():
        seeds = draw_seed(DEVICE, 2)
        one = relu_dropout(x, bias, 0.5, seeds[:1])
        two = embed(ids, weight, 2.0, ids, 0.5, seeds[1:], table=table, dtype=torch.bfloat16)
        return one, two, *torch.autograd.grad([one.sum(), two.sum()], [x, bias, weight])

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    seen = []
    for _ in range(2):
        for result in results:
            result.detach().fill_(float("nan"))
        graph.replay()
        seen.append([result.detach().clone() for result in results])
        one, _, d_x, d_bias, d_weight = seen[-1]
        assert torch.equal(d_x, one / 2)  # a kept relu_dropout(1 + 1) is 4, and its slope 2
        torch.testing.assert_close(d_bias, (one / 2).sum(0))
        assert torch.isfinite(d_weight).all()
    for i in range(2):
        assert not torch.equal(seen[0][i], seen[1][i])
