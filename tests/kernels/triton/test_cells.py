"""Recurrent layers on a GPU equal the plain loop, forward and every gradient, whatever the padding holds."""

import pytest
import torch

pytest.importorskip("triton")
from regard.kernels import reference
from regard.kernels.triton import cells as triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
@pytest.mark.parametrize(("b", "n", "d"), [(1, 1, 1), (3, 7, 5), (2, 4, 33)])
def test_a_layer_is_the_plain_loop(gates, b, n, d):
    lengths = torch.randint(0, n + 1, (b,))
    exact = [
        torch.randn(b, n, 2, gates * d, dtype=torch.float64),
        torch.randn(2, gates * d, d, dtype=torch.float64) / d**0.5,
        torch.randn(2, gates * d, dtype=torch.float64),
    ]
    exact = [each.requires_grad_() for each in exact]
    wanted = reference.run_layer(*exact, lengths)
    cotangent = torch.randn_like(wanted)
    slopes = torch.autograd.grad(wanted, exact, cotangent, allow_unused=True)
    given = [each.detach().float().to(DEVICE).requires_grad_() for each in exact]
    states = triton.run(*given, lengths.to(DEVICE))
    torch.testing.assert_close(states.double().cpu(), wanted, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(states, given, cotangent.float().to(DEVICE), allow_unused=True)
    assert (found[2] is None) == (slopes[2] is None) == (gates == 4)  # an LSTM's bias is already in its projection
    for one, other in zip(found, slopes, strict=True):
        if one is not None:
            torch.testing.assert_close(one.double().cpu(), other, rtol=1e-4, atol=1e-5)


# ---- launches: a program for each row, direction and block of the state


@pytest.mark.parametrize("d", [1, 33, 512, 513, 2000])
def test_every_number_of_a_state_has_a_program(d):
    (rows, blocks, ways), options = triton.grid(2, 5, d)
    assert (rows, ways) == (5, 2)
    assert options["BLOCK"] * (blocks - 1) < d <= options["BLOCK"] * blocks
    assert options["num_warps"] in (1, 2)


def test_strides():
    x = torch.zeros(2, 3, 4, 5)
    assert triton.strides_of(x) == (60, 20, 5)
    assert triton.strides_of(None) == (0, 0, 0)
    assert triton.ways(x[0]) == (20, 5)
    with pytest.raises(AssertionError):
        triton.ways(x[0].mT)
