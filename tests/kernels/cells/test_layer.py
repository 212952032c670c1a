"""Recurrent layers on a GPU: torch's own GRU and LSTM, forward and every gradient, whatever stands beyond a length."""

import interpreted  # noqa: F401
import pytest
import torch

pytest.importorskip("triton")
from regard.kernels.cells import layer
from regard.models.layers.cells import reverse_rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(kind, b, n, d, directions=2):
    gates = {"gru": 3, "lstm": 4}[kind]
    nets = [getattr(torch.nn, kind.upper())(gates * d, d, batch_first=True).double() for _ in range(directions)]
    for net in nets:
        net.weight_ih_l0.requires_grad_(False).copy_(torch.eye(gates * d))
        net.bias_ih_l0.requires_grad_(False).zero_()
        if kind == "lstm":
            net.bias_hh_l0.requires_grad_(False).zero_()
    x = torch.randn(b, n, directions, gates * d, dtype=torch.float64, requires_grad=True)
    return nets, x, torch.randint(0, n + 1, (b,))


def expected(nets, x, lengths):
    forwards, backwards = nets
    there, back = forwards(x[:, :, 0])[0], backwards(reverse_rows(x[:, :, 1], lengths))[0]
    return torch.cat([there, reverse_rows(back, lengths)], -1)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize(("b", "n", "d"), [(1, 1, 1), (3, 7, 5), (2, 4, 33)])
def test_a_layer_is_torchs(kind, b, n, d):
    nets, x, lengths = draw(kind, b, n, d)
    wanted = expected(nets, x, lengths)
    cotangent = torch.randn_like(wanted)
    recurrent = [net.weight_hh_l0 for net in nets]
    biases = [net.bias_hh_l0 for net in nets] if kind == "gru" else []
    exact = torch.autograd.grad(wanted, [x, *recurrent, *biases], cotangent)
    given = x.detach().float().to(DEVICE).requires_grad_()
    matrix = torch.stack(recurrent).detach().float().to(DEVICE).requires_grad_()
    bias = torch.stack([net.bias_hh_l0 for net in nets]).detach().float().to(DEVICE).requires_grad_()
    states = layer.run(given, matrix, bias, lengths.to(DEVICE))
    torch.testing.assert_close(states.double().cpu(), wanted, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(states, [given, matrix, bias], cotangent.float().to(DEVICE), allow_unused=True)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found[0].double().cpu(), exact[0], **close)
    torch.testing.assert_close(found[1].double().cpu(), torch.stack(exact[1:3]), **close)
    if kind == "gru":
        torch.testing.assert_close(found[2].double().cpu(), torch.stack(exact[3:]), **close)
    else:
        assert found[2] is None
