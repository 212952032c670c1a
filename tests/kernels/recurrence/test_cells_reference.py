"""The specification of recurrent layers: torch's own GRU and LSTM, a row of each length and direction."""

import pytest
import torch

from regard.kernels.recurrence import reference


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize(("b", "n", "d"), [(1, 1, 1), (3, 7, 5)])
def test_it_is_torchs(kind, b, n, d):
    gates = {"gru": 3, "lstm": 4}[kind] * d
    net = getattr(torch.nn, kind.upper())(6, d, batch_first=True, bidirectional=True).double()
    x, lengths = torch.randn(b, n, 6, dtype=torch.float64), torch.randint(1, n + 1, (b,))
    lengths[0] = n
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(net(packed)[0], batch_first=True)
    weights, recurrent = (
        torch.stack([getattr(net, f"weight_{part}_l0{way}") for way in ("", "_reverse")]) for part in ("ih", "hh")
    )
    own, bias = (
        torch.stack([getattr(net, f"bias_{part}_l0{way}") for way in ("", "_reverse")]) for part in ("ih", "hh")
    )
    projected = torch.einsum("bne,kge->bnkg", x, weights) + own + (bias if kind == "lstm" else 0)
    assert projected.shape == (b, n, 2, gates)
    found = reference.run_layer(projected, recurrent, bias, lengths)
    there = torch.arange(n)[None, :, None] < lengths[:, None, None]
    torch.testing.assert_close(found * there, wanted)
