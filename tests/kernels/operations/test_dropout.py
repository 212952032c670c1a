"""Which code applies dropout and adds a residual: Regard's on a CPU, one CUDA kernel for rows that fit, else torch."""

import math

import pytest
import torch
import torch.nn.functional as F
from oracles import agree
from torch.utils.checkpoint import checkpoint

from regard.attention import Block
from regard.errors import ShapeError
from regard.kernels import reference
from regard.kernels.operations import dropout as cpu
from regard.kernels.operations.dropout import (
    dropout,
    dropout_add,
    gelu_dropout,
    relu_dropout,
    residual,
    silu_dropout,
)

FORMS = [
    lambda x: dropout(x, 0.5),
    lambda x: dropout_add(x, x, 0.5),
    lambda x: relu_dropout(x, 0.5),
    lambda x: gelu_dropout(x + 1, 0.5),
    lambda x: silu_dropout(x + 1, 0.5),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_compiler_gets_torchs_own(form, monkeypatch):
    """The compiler can trace it: torch's own draw from the same seed."""
    x = torch.ones(1000)
    torch.manual_seed(1)
    mask = torch.nn.functional.dropout(x, 0.5) > 0
    torch.manual_seed(1)
    assert not torch.equal(form(x) == form(torch.zeros(1000)), ~mask)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.manual_seed(1)
    found = form(x)
    assert torch.equal(found > 1.5, mask)


# ---- drawn in sixteen-bit parts: equal to the reference with the drawn mask, and the mask has the right distribution


CPU_FORMS = {
    "dropout": (dropout, reference.dropout, 1),
    "dropout_add": (dropout_add, lambda x, y, *drawn: x + reference.dropout(y, *drawn), 2),
    "relu_dropout": (relu_dropout, lambda x, *drawn: reference.dropout(x.relu(), *drawn), 1),
    "gelu_dropout": (gelu_dropout, lambda x, *drawn: reference.dropout(F.gelu(x), *drawn), 1),
    "silu_dropout": (silu_dropout, lambda x, *drawn: reference.dropout(F.silu(x), *drawn), 1),
}
TOLERANCE = {
    torch.float32: {"rtol": 1.3e-6, "atol": 1e-5},
    torch.float64: {"rtol": 1e-12, "atol": 1e-12},
    torch.bfloat16: {"rtol": 0.016, "atol": 0.03},  # the reference rounds between its operations
}
SHAPES = [(), (1,), (0, 3), (7,), (5, 63), (2, 3, 4, 1)]


def drawn(shape, p, seed):
    torch.manual_seed(seed)
    return cpu.draw(torch.empty(shape), p)


@pytest.mark.parametrize("form", CPU_FORMS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_is_the_reference_with_the_mask_that_was_drawn(form, shape, dtype):
    found, expected, count = CPU_FORMS[form]
    inputs = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(count)]
    keep, kept = drawn(shape, 0.3, seed=5)
    torch.manual_seed(5)
    agree(found(*inputs, 0.3), expected(*inputs, keep, kept), inputs, **TOLERANCE[dtype])


@pytest.mark.parametrize("form", CPU_FORMS)
def test_strides_do_not_matter(form):
    found, expected, count = CPU_FORMS[form]
    inputs = [torch.randn(7, 5, 3).transpose(0, 2)[::2].requires_grad_() for _ in range(count)]
    keep, kept = drawn(inputs[0].shape, 0.5, seed=1)
    torch.manual_seed(1)
    one, other = found(*inputs, 0.5), expected(*inputs, keep, kept)
    agree(one, other, inputs, **TOLERANCE[torch.float32])
    cotangent = torch.randn(()).expand_as(one)
    torch.testing.assert_close(
        torch.autograd.grad(one, inputs, cotangent), torch.autograd.grad(other, inputs, cotangent)
    )


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_the_share_is_what_was_asked(p):
    count = 1 << 22
    keep, kept = drawn((count,), p, seed=torch.seed() % 2**31)
    assert abs(kept - (1 - p)) <= 1 / 65536
    assert abs(float(keep.float().mean()) - kept) < 5 * math.sqrt(p * (1 - p) / count)


def correlation(a, b):
    a, b = a.double() - a.double().mean(), b.double() - b.double().mean()
    return float((a * b).mean() / (a.std() * b.std()))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_draws_do_not_know_each_other(p):
    """Neighbours, numbers cut from one word, rows, and two calls: no correlation beyond chance."""
    count = 1 << 20
    keep, again = (cpu.draw(torch.empty(count), p)[0] for _ in range(2))
    limit = 5 / math.sqrt(count)
    for distance in (1, 2, 3, 4, 8, 64, 256, 1024, 4096):
        assert abs(correlation(keep[distance:], keep[:-distance])) < 1.01 * limit * math.sqrt(
            count / (count - distance)
        )
    assert abs(correlation(keep, again)) < limit
    # Runs of dropped numbers are as frequent as in independent draws.
    runs = (~keep).unfold(0, 3, 1).all(-1).double().mean()
    assert float(runs) == pytest.approx(p**3, abs=10 * math.sqrt(p**3 / count))


def test_seeds_that_are_neighbours_give_masks_that_are_not():
    masks = [drawn((1 << 18,), 0.5, seed)[0] for seed in range(4)]
    for i in range(4):
        for j in range(i):
            assert abs(correlation(masks[i], masks[j])) < 5 / math.sqrt(1 << 18)


def test_torchs_generator_repeats_it_and_is_moved_by_one_draw():
    x = torch.ones(1000)
    torch.manual_seed(3)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    state = torch.get_rng_state()
    third = dropout(x, 0.5)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5), first)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.5), third)
    torch.manual_seed(3)
    torch.empty((), dtype=torch.int64).random_()
    assert torch.equal(dropout(x, 0.5), second)


def test_numpys_own_generator_is_left_alone():
    import numpy as np

    np.random.seed(1)
    before = np.random.get_state()[1].tolist()
    dropout(torch.ones(10), 0.5)
    assert np.random.get_state()[1].tolist() == before


def test_without_dropout_nothing_is_drawn():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    before = torch.get_rng_state()
    assert dropout(x, 0.0) is x
    assert torch.equal(dropout_add(x, y, 0.0), x + y)
    assert torch.equal(relu_dropout(x, 0.0), x.relu())
    assert torch.equal(gelu_dropout(x, 0.0), torch.nn.functional.gelu(x))
    assert torch.equal(silu_dropout(x, 0.0), torch.nn.functional.silu(x))
    assert torch.equal(torch.get_rng_state(), before)


def test_used_twice_in_a_graph_each_has_its_mask():
    x = torch.ones(10_000, requires_grad=True)
    one, other = dropout(x, 0.5), dropout(x, 0.5)
    (one * 3 + other * 5).sum().backward()
    assert torch.equal(x.grad, 3 * one + 5 * other)
    assert sorted(x.grad.unique().tolist()) == [0, 6, 10, 16]


def test_its_own_output_can_be_used_again_and_twice_backward():
    x = torch.randn(50, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.5)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], first)
    z = dropout(x, 0.5).square()
    (slope,) = torch.autograd.grad(z.sum(), x, create_graph=True)
    (curve,) = torch.autograd.grad(slope.sum(), x)
    assert set(curve.tolist()) == {0.0, 8.0}


def test_no_gradient_is_kept_where_none_is_asked():
    assert not dropout(torch.ones(5), 0.5).requires_grad
    with torch.no_grad():
        assert dropout(torch.ones(5, requires_grad=True), 0.5).grad_fn is None
    x, y = torch.ones(5, requires_grad=True), torch.ones(5)
    dropout_add(x, y, 0.5).sum().backward()
    assert torch.equal(x.grad, torch.ones(5))


def test_a_residual_that_broadcasts():
    x, y = torch.ones(3, 1, requires_grad=True), torch.ones(3, 4, requires_grad=True)
    together = dropout_add(x, y, 0.5)
    assert together.shape == (3, 4)
    together.sum().backward()
    assert torch.equal(x.grad, torch.full((3, 1), 4.0))


def test_recomputed_activations_draw_the_same_mask():
    x = torch.randn(200, requires_grad=True)
    torch.manual_seed(0)
    plain = torch.autograd.grad(dropout(x, 0.5).square().sum(), x)[0]
    torch.manual_seed(0)
    again = torch.autograd.grad(checkpoint(lambda t: dropout(t, 0.5).square(), x, use_reentrant=False).sum(), x)[0]
    assert torch.equal(plain, again)


@pytest.mark.parametrize("place", ["dropout", "feed_dropout"])
def test_a_block_with_dropout_is_right_on_average(place):
    torch.manual_seed(0)
    block = Block(8, 2, **{place: 0.2}).double()
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    with torch.no_grad():
        # The last part's output enters linearly, so its mean over masks equals the plain one; the attention's does not.
        torch.nn.init.zeros_(block.attention.output.weight)
        many = block(x.expand(20_000, -1, -1))
        torch.testing.assert_close(many.mean(0, keepdim=True), block.eval()(x), rtol=0.1, atol=0.02)
    assert float(many.var(0).max()) > 0


# ---- the residual


@pytest.mark.parametrize("normed", [True, False])
def test_where_the_kernel_does_not_serve_it_is_the_same(normed):
    norm = [torch.randn(24), torch.randn(24)] if normed else [None, None]
    inputs = [torch.randn(7, 24), torch.randn(7, 24), torch.randn(24)]
    found = residual(*inputs, 0.0, *norm)
    expected = reference.residual(*inputs, None, 1.0, *norm, 1e-5)
    assert (found[1] is None) == (expected[1] is None) == (not normed)
    torch.testing.assert_close(found[: 1 + normed], expected[: 1 + normed])
    dropped, _ = residual(torch.zeros(500, 9), torch.ones(500, 9), None, 0.5, None, None)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


@pytest.mark.unchecked
def test_wrong_arguments_are_named():
    with pytest.raises(ShapeError, match=r"y: \[2, 3\] given, expected x's \[4, 3\]"):
        residual(torch.zeros(4, 3), torch.zeros(2, 3), None, 0.0, None, None)


def test_the_expectation_and_the_variance_stay():
    x, p = torch.full((1 << 21,), 3.0), 0.1
    y = dropout(x, p)
    assert float(y.mean()) == pytest.approx(3.0, abs=5 * 3 * math.sqrt(p / (1 - p) / len(x)))
    assert float(y.var()) == pytest.approx(9 * p / (1 - p), rel=0.02)


def test_a_block_drops_in_training_only():
    block = Block(8, 2, dropout=0.5, feed_dropout=0.5)
    x = torch.randn(2, 5, 8)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))
