"""The LSTMN's plain loops against the paper's formulas, number by number for one sentence, and against torch's LSTM."""

import pytest
import torch
from kernels.recurrence.cases import draw, plain
from oracles import agree
from torch import nn

from regard.kernels.recurrence import reference
from regard.kernels.recurrence.lstmn_cpu import ScoreWeights


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64) / 2


def test_without_attention_it_is_torchs_lstm():
    net = torch.nn.LSTM(3, 5).double()
    x = normal(7, 2, 3)
    projected = x @ net.weight_ih_l0.T + net.bias_ih_l0 + net.bias_hh_l0
    agree(reference.run_tapes(projected, net.weight_hh_l0)[..., :5], net(x)[0], [net.weight_hh_l0])


def test_a_step_looks_at_all_entries_before_it():
    n, d, h = 5, 3, 4
    projected, recurrent, words = normal(n, 1, 4 * d), normal(4 * d, d), normal(n, 1, h)
    score = ScoreWeights(normal(h, d), normal(h, d), normal(h), normal(h))
    found = reference.run_tapes(projected, recurrent, None, words, score)[:, 0]
    summary, hidden, cells = torch.zeros(d).double(), [], []
    for t in range(n):
        asked = words[t, 0] + score.summary @ summary + score.bias
        a = [torch.exp(score.vector @ torch.tanh(asked + score.entry @ one)) for one in hidden]
        summary = sum((w / sum(a) * one for w, one in zip(a, hidden, strict=True)), torch.zeros(d).double())
        memory = sum((w / sum(a) * one for w, one in zip(a, cells, strict=True)), torch.zeros(d).double())
        i, f, g, o = (projected[t, 0] + recurrent @ summary).split(d)
        cells.append(f.sigmoid() * memory + i.sigmoid() * g.tanh())
        hidden.append(o.sigmoid() * cells[-1].tanh())
        agree(found[t], torch.cat([hidden[-1], cells[-1]]))


def test_a_source_is_read_by_the_word_and_the_last_read():
    n, m, d, h = 4, 3, 2, 5
    words, keys, values = normal(n, 1, h), normal(1, m, h), normal(1, m, 2 * d)
    summary, vector, exists = normal(h, d), normal(h), torch.tensor([[True, True, False]])
    found = reference.read_source(words, keys, values, exists, summary, vector)[:, 0]
    last = torch.zeros(d).double()
    for t in range(n):
        a = [torch.exp(vector @ torch.tanh(words[t, 0] + summary @ last + key)) for key in keys[0, :2]]
        read = sum(w / sum(a) * value for w, value in zip(a, values[0], strict=False))
        agree(found[t], read)
        last = read[:d]


# ---- RNNsearch's plain loop against torch's own cells, step by step and sentence by sentence


@pytest.mark.parametrize(("gates", "cell"), [(3, nn.GRUCell), (4, nn.LSTMCell)])
def test_every_step_is_the_papers(gates, cell):
    b, n, m, d, h, dv = 3, 4, 5, 3, 7, 2
    inputs, lengths = draw(gates, b, n, m, d, h, dv)
    projected, start, keys, values, query, vector, read, recurrent, bias = inputs
    states, contexts, weights = plain(reference.recur, inputs, lengths)
    one = cell(dv, d).double()
    with torch.no_grad():
        one.weight_ih.copy_(read)
        one.weight_hh.copy_(recurrent)
        one.bias_hh.copy_(bias)
        for row in range(b):
            state, length = start[row], int(lengths[row])
            for i in range(n):
                scores = [float(vector @ torch.tanh(query @ state[0] + key)) for key in keys[row, :length]]
                a = torch.tensor(scores, dtype=torch.float64).softmax(0) if length else torch.zeros(0)
                context = sum((x * value for x, value in zip(a, values[row], strict=False)), torch.zeros(dv))
                one.bias_ih.copy_(projected[row, i])
                given = state[0] if gates == 3 else (state[0], state[1])
                moved = one(context.double(), given)
                state = moved[None] if gates == 3 else torch.stack(moved)
                torch.testing.assert_close(states[row, i], state[0])
                torch.testing.assert_close(contexts[row, i], context.double())
                torch.testing.assert_close(weights[row, i, :length], a.double())
                assert not weights[row, i, length:].any()


# ---- recurrent layers: torch's own GRU and LSTM, a row of each length and direction


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
